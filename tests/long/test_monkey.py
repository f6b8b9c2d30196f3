"""A monkey before the real screen, with a job running: nothing ends but what was asked to, and undo gives the first bytes.

DSTUI_MONKEY=100000 python -m pytest -n0 -s tests/long/test_monkey.py
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.monkey_session import MonkeySession

COUNT = int(os.environ.get("DSTUI_MONKEY", "5000"))
FIRST = int(os.environ.get("DSTUI_SEED", "0"))
EACH = 1000
"""Inputs of one session."""


def test_a_monkey_ends_no_session_that_it_did_not_leave(tmp_path: Path) -> None:
    monkey = MonkeySession(tmp_path / "here")
    try:
        for seed in range(FIRST, FIRST + max(COUNT // EACH, 1)):
            played = monkey.play(seed, min(COUNT, EACH))
            print(f"seed {seed}: {played.inputs} inputs, left {played.left} times, {len(played.problems)} problems", flush=True)
    finally:
        monkey.close()
    assert not monkey.played.problems, "\n\n".join(monkey.played.problems)
