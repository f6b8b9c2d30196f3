"""`H`: plan for another machine by its name."""

from __future__ import annotations

from tests.tui.conftest import Open, screen, store, until
from tests.tui.test_memory_bars import FOUR, SEVEN


async def test_h_plans_for_named_hardware_and_an_empty_line_returns(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        await until(pilot, lambda: store(pilot).state.outlook)
        await pilot.press("H")
        await until(pilot, lambda: "Plan for another machine" in screen(pilot))
        await pilot.press(*"8xH10", "enter")
        await until(pilot, lambda: "did you mean" in screen(pilot))
        await pilot.press(*("backspace",) * 5, *"8xA100-40 ib-200", "enter")
        await until(pilot, lambda: store(pilot).state.machine is not None and len(store(pilot).state.machine.gpus) == 8)
        machine = store(pilot).state.machine
        assert machine is not None and machine.recorded
        await until(pilot, lambda: "40 GB" in screen(pilot))
        await pilot.press("H")
        await until(pilot, lambda: "Plan for another machine" in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: store(pilot).state.machine == FOUR)
