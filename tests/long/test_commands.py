"""Thousands of commands on hostile input: no traceback, no signal, no control character, no foreign process, and limited memory and time.

DSTUI_COMMANDS=5000 python -m pytest -q -s tests/long/test_commands.py        5,000 commands, a quarter of an hour on two cores
DSTUI_SEED=4711 DSTUI_COMMANDS=1 …                                            one of them again
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.runner import Outcome, run_many

COMMANDS = int(os.environ.get("DSTUI_COMMANDS", "5000"))
SEED = int(os.environ.get("DSTUI_SEED", "1"))


def test_thousands_of_hostile_commands_neither_crash_nor_act(tmp_path: Path) -> None:
    outcome: Outcome = run_many(range(SEED, SEED + COMMANDS), tmp_path, tell=lambda text: print(text, flush=True))
    print(f"\n{outcome}")
    assert not outcome.failures
