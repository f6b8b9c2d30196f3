"""A monkey before the real screen for a moment; tests/long/test_monkey.py leaves it there for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.monkey_session import MonkeySession


@pytest.mark.launcher
def test_a_monkey_ends_no_session_that_it_did_not_leave_and_undo_takes_back_what_it_did(tmp_path: Path) -> None:
    monkey = MonkeySession(tmp_path / "here", "--no-oracle")
    try:
        assert monkey.play(1, 80).problems == []
    finally:
        monkey.close()
