"""The ZeRO step shows memory and speed of each stage and offload."""

from __future__ import annotations

from dstui.forecast.choices import Choice
from dstui.tui.forms.steps.figures import figure
from tests.tui.conftest import PLAN, Open, screen, store, text_of, until
from tests.tui.test_memory_bars import FOUR, SEVEN

EVERYTHING = "○ 0  nothing"
OFFLOAD = "With other offload (step 4)"


def line(text: str, start: str) -> str:
    """Return the line that begins with this text."""
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(start))


async def test_each_stage_shows_needed_and_free_memory_and_speed(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        await pilot.press("3")
        await until(pilot, lambda: OFFLOAD in text_of(pilot, "#form-rows"))
        form, outlook = text_of(pilot, "#form-rows"), store(pilot).state.outlook
        assert outlook is not None
        for label, choice in ((EVERYTHING, Choice(0)), ("● 2", Choice(2)), ("2  optimizer in RAM", Choice(2, "cpu"))):
            assert line(form, label).endswith(figure(outlook.choices[choice]))
        assert "✖" in line(form, EVERYTHING)
        assert "✔" in line(form, "2  optimizer in RAM")
        assert "NVMe" not in form


async def test_row_of_the_chosen_stage_equals_the_plans_forecast_with_offload(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4) as pilot:
        store(pilot).edit(("deepspeed.zero_optimization.offload_optimizer.device", "cpu"))
        await pilot.press("3")
        await until(pilot, lambda: "2  no offload" in text_of(pilot, "#form-rows"))
        outlook = store(pilot).state.outlook
        assert outlook is not None
        assert line(text_of(pilot, "#form-rows"), "● 2").endswith(figure(outlook.forecast))


async def test_text_stays_if_no_model_is_named(open_app: Open) -> None:
    async with open_app(PLAN, gpus=4) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: "each rank holds everything" in text_of(pilot, "#form-rows"))
        assert OFFLOAD not in text_of(pilot, "#form-rows")


async def test_alternatives_are_below_the_fields_on_a_small_screen(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4, size=(80, 24)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: OFFLOAD in text_of(pilot, "#form-rows"))
        form = text_of(pilot, "#form-rows")
        assert form.index(OFFLOAD) > form.index("Quantized grads")
        assert "Round-robin gradients" in screen(pilot)


async def test_ranks_without_gpu_show_ram(open_app: Open) -> None:
    async with open_app(SEVEN.replace("7.0e9", "1.0e8").replace("2048", "256")) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: "RAM  left" in text_of(pilot, "#form-rows"))
        assert "offload" not in text_of(pilot, "#form-rows")
