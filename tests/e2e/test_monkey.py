"""A short monkey test of the real TUI; tests/long/test_monkey.py runs for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.monkey_session import MonkeySession


@pytest.mark.launcher
def test_monkey_ends_no_session_and_undo_reverts_its_edits(tmp_path: Path) -> None:
    monkey = MonkeySession(tmp_path / "here", "--no-oracle")
    try:
        assert monkey.play(1, 80).problems == []
    finally:
        monkey.close()
