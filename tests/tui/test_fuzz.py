"""Random keys do not crash the app or change the file, and undo restores the Plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.conftest import Open
from tests.tui.fuzz import PLANS, send_random_inputs


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.every_frame
async def test_random_keys_break_nothing(open_app: Open, tmp_path: Path, plan: str) -> None:
    async with open_app(PLANS[plan], gpus=4) as pilot:
        await send_random_inputs(pilot, tmp_path / "plan.yaml", 40, seed=1)
