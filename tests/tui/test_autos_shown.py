""" "auto" and DeepSpeed's deprecated switches are shown as they are read, and disable nothing that may be valid."""

from __future__ import annotations

import pytest

from tests.tui.conftest import PLAN, Open, screen, text_of, until, value

TRAINER = PLAN.replace("  script: train.py\n", "  script: train.py\n  integration: INTEGRATION\n")


def plan(integration: str, zero: str = "{stage: auto}", bf16: str = "auto") -> str:
    """Return the Plan with another integration, ZeRO section and bf16."""
    text = TRAINER.replace("INTEGRATION", integration).replace("    enabled: true", f"    enabled: {bf16}")
    return text.replace("  zero_optimization:\n    stage: 2\n", f"  zero_optimization: {zero}\n")


@pytest.mark.parametrize("integration", ["trainer", "accelerate"])
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_value_filled_by_the_integration_is_shown_as_auto_and_disables_nothing(
    open_app: Open, integration: str, size: tuple[int, int]
) -> None:
    async with open_app(plan(integration), size=size) as pilot:
        await pilot.press("3")
        assert "ZeRO-auto · auto" in screen(pilot)
        form = text_of(pilot, "#form-rows")
        assert "● auto" in form and "accelerate's --zero_stage" in form
        assert "needs stage" not in form
        await pilot.press("4")
        assert "needs stage" not in text_of(pilot, "#form-rows")
        await pilot.press("5")
        form = text_of(pilot, "#form-rows")
        assert "● auto" in form and "only with fp16" not in form
        await pilot.press("home", "down", "space")
        assert (value(pilot, "deepspeed.bf16.enabled"), "● bf16" in text_of(pilot, "#form-rows")) == (True, True)


async def test_form_says_that_plain_deepspeed_ignores_auto(open_app: Open) -> None:
    async with open_app(plan("deepspeed")) as pilot:
        await pilot.press("3")
        form = text_of(pilot, "#form-rows")
        assert "● auto" in form and "DeepSpeed ignores it" in form and "needs stage 3" in form
        assert "ZeRO-0 · fp32" in screen(pilot)


async def test_deprecated_zero_switch_is_stage_1_and_becomes_a_section_when_edited(open_app: Open) -> None:
    async with open_app(plan("deepspeed", "true", "true")) as pilot:
        await pilot.press("3")
        assert "ZeRO-1" in screen(pilot) and "● 1  optimizer states" in text_of(pilot, "#form-rows")
        await pilot.press("down", "enter")
        assert value(pilot, "deepspeed.zero_optimization") == {"stage": 2}
        await pilot.press("z")
        assert value(pilot, "deepspeed.zero_optimization") is True
        await pilot.press("4", "down", "enter")
        await until(pilot, lambda: value(pilot, "deepspeed.zero_optimization") != True)  # noqa: E712
        assert value(pilot, "deepspeed.zero_optimization") == {"stage": 1, "offload_optimizer": {"device": "cpu"}}


async def test_switch_set_to_auto_is_not_off(open_app: Open) -> None:
    async with open_app(plan("trainer", "{stage: 3, stage3_gather_16bit_weights_on_model_save: auto}")) as pilot:
        await pilot.press("3")
        line = next(line for line in text_of(pilot, "#form-rows").splitlines() if "16-bit weights" in line)
        assert "auto" in line and "no" not in line.replace("on save", "")


async def test_precision_can_be_left_to_the_integration(open_app: Open) -> None:
    async with open_app(plan("trainer", "{stage: 2}", "true")) as pilot:
        await pilot.press("5", "down", "down", "down", "enter")
        assert (value(pilot, "deepspeed.bf16.enabled"), value(pilot, "deepspeed.fp16.enabled")) == ("auto", "auto")
