"""`r` ranks fitting plans and applies one; `M` shows what uses the memory."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.machine.snapshot import GIB, Host, Machine
from dstui.tui.dialogs.forecast_dialogs import breakdown_rows
from tests.machines import gpus, joined
from tests.tui.conftest import PLAN, Open, letters, notices, screen, store, text_of, until, value
from tests.tui.test_memory_bars import FOUR, SEVEN

ROWS = "#recommended"
SMALL = Machine(
    source="a test",
    gpus=gpus(1, memory_total=8 * GIB),
    links=joined(1),
    host=Host(memory_total=8 * GIB, memory_available=8 * GIB, memory_limit=None),
)


async def test_r_ranks_plans_and_enter_applies_one_as_one_undo_step(open_app: Open) -> None:
    async with open_app(SEVEN.replace("stage: 2", "stage: 0"), gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        await until(pilot, lambda: store(pilot).state.outlook)
        before = store(pilot).state.plan.text
        await pilot.press("3", "r")
        await until(pilot, lambda: "zero_optimization.stage: 0 →" in text_of(pilot, ROWS))
        told = text_of(pilot, ROWS)
        assert re.search(r"^ +GPU needs +of\n✖ +\S+ GB +\d\.\dx +GPU +the Plan as it is", told)
        assert store(pilot).state.plan.text == before
        stage = re.search(r"stage: 0 → (\d)", told)
        await pilot.press("enter")
        await until(pilot, lambda: store(pilot).state.plan.text != before)
        assert stage is not None
        assert value(pilot, "deepspeed.zero_optimization.stage") == int(stage[1])
        outlook = store(pilot).state.outlook
        assert outlook is not None
        assert outlook.forecast.fits
        await pilot.press("z")
        assert store(pilot).state.plan.text == before


async def test_changes_of_the_selected_plan_are_shown(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4, size=(80, 24)) as pilot:
        store(pilot).machine_probed(replace(FOUR, recorded=True))
        await until(pilot, lambda: store(pilot).state.outlook)
        await pilot.press("3", "r")
        await until(pilot, lambda: "left tok/s" in text_of(pilot, ROWS))
        shown = set()
        for _ in range(8):
            lines = [line for line in text_of(pilot, ROWS).splitlines() if line.startswith("    ") and "tok/s" not in line]
            assert lines
            assert lines[0].strip() in screen(pilot)
            shown.add(tuple(lines))
            await pilot.press("down")
            await pilot.pause()
        assert len(shown) > 4
        await pilot.press("T")
        assert not letters(pilot), "the machine is recorded"
        await pilot.press("escape")
        assert not store(pilot).can_undo


async def test_closest_alternatives_are_shown_if_nothing_fits(open_app: Open) -> None:
    async with open_app(SEVEN.replace("7.0e9", "13.0e9"), gpus=1) as pilot:
        store(pilot).machine_probed(SMALL)
        await until(pilot, lambda: store(pilot).state.outlook)
        await pilot.press("3", "r")
        await until(pilot, lambda: "Nothing fits" in text_of(pilot, ROWS))
        assert "of these GPUs instead of 1" in text_of(pilot, ROWS)
        await pilot.press("enter", "escape")
        assert not store(pilot).can_undo


@pytest.mark.parametrize(("gpus", "heading"), [(0, "RAM  left tok/s"), (1, "GPU  left tok/s  RAM")])
async def test_plans_name_the_ram_once(open_app: Open, gpus: int, heading: str) -> None:
    async with open_app(SEVEN.replace("7.0e9", "1.0e8").replace("2048", "256"), gpus=gpus) as pilot:
        await until(pilot, lambda: store(pilot).state.outlook)
        await pilot.press("3", "r")
        await until(pilot, lambda: "The best of" in text_of(pilot, ROWS))
        headings = [line.strip() for line in text_of(pilot, ROWS).splitlines() if "left tok/s" in line]
        assert headings[-1] == heading


async def test_both_keys_say_which_model_setting_is_missing(open_app: Open) -> None:
    async with open_app(PLAN, gpus=2) as pilot:
        for key in ("r", "M"):
            await pilot.press("3", key)
            await until(pilot, lambda: any("Set the model" in note.message for note in pilot.app._notifications))
            pilot.app.clear_notifications()
        assert len(pilot.app.screen_stack) == 1


async def test_capital_m_lists_every_part_in_bytes_and_the_moment_of_the_peak(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        await until(pilot, lambda: store(pilot).state.outlook)
        outlook = store(pilot).state.outlook
        assert outlook is not None
        await pilot.press("3", "M")
        await until(pilot, lambda: "The peak is at: " in text_of(pilot, "#reading"))
        told = text_of(pilot, "#reading")
        large = [part for part, amount in outlook.forecast.gpu.parts.items() if amount > outlook.forecast.gpu.bytes / 100]  # type: ignore[operator]
        assert len(large) > 4
        assert all(part.replace("_", " ") in told for part in large)
        assert outlook.forecast.unknown and all(" ".join(one.split()[:3]) in told for one in outlook.forecast.unknown)
        assert all(sum(len(span.text) for span in (*line.left, *line.right)) <= 60 for line in breakdown_rows(outlook.forecast, 60))


async def test_r_does_nothing_on_the_run_screen(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=2) as pilot:
        await pilot.press("9", "r")
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1


async def test_measuring_asks_hands_over_the_terminal_and_keeps_the_plan_unless_it_wins(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run `dstui tune` without handing over a terminal, since a pilot has none."""
    monkeypatch.setattr("dstui.tui.app.DstuiApp.suspend", lambda _: nullcontext())
    async with open_app(SEVEN, gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        await until(pilot, lambda: store(pilot).state.outlook)
        before = store(pilot).state.plan.text
        await pilot.press("3", "r")
        await until(pilot, lambda: "T  measure" in text_of(pilot, ROWS))
        (tmp_path / "train.py").unlink()  # dstui tune says so and starts no job
        await pilot.press("T")
        await until(pilot, lambda: letters(pilot))
        await pilot.press("y")
        await until(pilot, lambda: notices(pilot))
        assert store(pilot).state.plan.text == before
