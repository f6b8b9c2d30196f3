"""Monkey test of the real TUI with a running job: it ends only on request, and undo restores the Plan's bytes.

DSTUI_MONKEY=100000 python -m pytest -n0 -s tests/long/test_monkey.py
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.monkey_session import MonkeySession

COUNT = int(os.environ.get("DSTUI_MONKEY", "5000"))
FIRST = int(os.environ.get("DSTUI_SEED", "0"))
EACH = 1000
"""Inputs per session."""


def test_monkey_ends_no_session_unasked(tmp_path: Path) -> None:
    monkey = MonkeySession(tmp_path / "here")
    try:
        for seed in range(FIRST, FIRST + max(COUNT // EACH, 1)):
            played = monkey.play(seed, min(COUNT, EACH))
            print(f"seed {seed}: {played.inputs} inputs, left {played.left} times, {len(played.problems)} problems", flush=True)
    finally:
        monkey.close()
    assert not monkey.played.problems, "\n\n".join(monkey.played.problems)
