"""Thousands of random keys in the wizard, on several Plans and machines.

DSTUI_KEYS=5000 python -m pytest tests/long/test_keys.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tui.conftest import Open
from tests.tui.conftest import open_app as open_app  # noqa: PLC0414 - a fixture
from tests.tui.fuzz import PLANS, send_random_inputs

KEYS = int(os.environ.get("DSTUI_KEYS", "1500"))


@pytest.mark.parametrize("gpus", [0, 8])
@pytest.mark.parametrize("plan", PLANS)
async def test_thousands_of_random_keys_break_nothing(open_app: Open, tmp_path: Path, plan: str, gpus: int) -> None:
    async with open_app(PLANS[plan], gpus=gpus) as pilot:
        await send_random_inputs(pilot, tmp_path / "plan.yaml", KEYS, seed=KEYS + gpus)
