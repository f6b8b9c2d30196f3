"""The forecast in the TUI: bars that follow every choice, and a finding with a fix if the Plan does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dstui.facts.measured import Taken, remember
from dstui.forecast.choices import Choice
from dstui.forecast.need import Need
from dstui.machine.snapshot import GIB, Host, Machine
from dstui.tui.forms.memory_rows import place_rows
from tests.machines import gpus, joined
from tests.tui.conftest import PLAN, Open, screen, store, text_of, until, value

SEVEN = PLAN.replace("deepspeed:\n", "model: {params: 7.0e9, sequence_length: 2048, activation_checkpointing: true}\ndeepspeed:\n")
"""A model of 7e9 parameters, which fits on 4 x A100 80GB at stage 2."""
LLAMA = PLAN.replace("deepspeed:\n", "model: {source: llama, sequence_length: 2048, activation_checkpointing: true}\ndeepspeed:\n")
ROOMY = Host(memory_total=1000 * GIB, memory_available=1000 * GIB, memory_limit=None)
FOUR = Machine(source="a test", gpus=gpus(4), links=joined(4), host=ROOMY)
SMALL_LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 32000,
}


async def test_bars_show_needed_and_free_memory_and_follow_choices(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=4) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: "GPU" in text_of(pilot, "#memory"))
        before = text_of(pilot, "#memory")
        assert "of 80 GB" in before
        assert "✔ fits" in before
        await pilot.press("down", "enter")
        assert value(pilot, "deepspeed.zero_optimization.stage") == 3
        assert text_of(pilot, "#memory") != before


async def test_memory_used_by_others_is_not_free(open_app: Open) -> None:
    async with open_app(SEVEN, gpus=2) as pilot:
        busy = Machine(source="a test", gpus=gpus(2, memory_used=60 * GIB), links=joined(2), host=ROOMY)
        store(pilot).machine_probed(busy)
        await until(pilot, lambda: "of 20 GB" in text_of(pilot, "#memory"))
        assert "✖ too big" in text_of(pilot, "#memory")


async def test_one_line_says_which_model_setting_is_missing(open_app: Open) -> None:
    async with open_app(PLAN, gpus=2) as pilot:
        await until(pilot, lambda: "Set the model" in text_of(pilot, "#memory"))
        assert "step 2" in text_of(pilot, "#memory")
        assert len(text_of(pilot, "#memory").splitlines()) == 1
        store(pilot).edit(("model.params", 7.0e9))
        await until(pilot, lambda: "GPU" in text_of(pilot, "#memory"))


async def test_model_on_disk_is_read_in_the_background_and_errors_are_reported(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    config = tmp_path / "llama" / "config.json"
    config.write_text(json.dumps(SMALL_LLAMA))
    async with open_app(LLAMA, gpus=2) as pilot:
        await until(pilot, lambda: "✔ fits" in text_of(pilot, "#memory"))
        config.write_text("[]")
        store(pilot).edit(("name", "other"))
        await until(pilot, lambda: "No forecast: " in text_of(pilot, "#memory"))


def test_bar_says_that_what_may_fit_is_only_probably_too_big() -> None:
    (shown,) = place_rows({"gpu": Need(bytes=90 * GIB, range=(70 * GIB, 100 * GIB), capacity=80 * GIB)}, 100)
    assert shown.text.endswith("✖ probably too big")


async def test_small_screen_shows_the_line_of_the_scarcest_memory(open_app: Open) -> None:
    async with open_app(SEVEN.replace("stage: 2", "stage: 0"), gpus=4, size=(80, 24)) as pilot:
        store(pilot).machine_probed(FOUR)
        await pilot.press("3")
        await until(pilot, lambda: "GPU" in text_of(pilot, "#memory"))
        assert "✖ too big" in text_of(pilot, "#memory")
        assert len(text_of(pilot, "#memory").splitlines()) == 1
        assert "✖ too big" in screen(pilot)


async def test_misfit_is_a_finding_with_a_fix_by_one_key(open_app: Open) -> None:
    async with open_app(SEVEN.replace("stage: 2", "stage: 0"), gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        await until(pilot, lambda: any(f.code == "FC001" for f in store(pilot).state.findings))
        before = store(pilot).state.plan.text
        await pilot.press("3", "x")
        await until(pilot, lambda: store(pilot).state.plan.text != before)
        assert all(f.code != "FC001" for f in store(pilot).state.findings)
        assert "✖" not in text_of(pilot, "#memory")
        await pilot.press("z")
        assert store(pilot).state.plan.text == before


async def test_several_models_and_odd_values_do_not_crash(open_app: Open) -> None:
    several = PLAN + "models:\n  actor: {role: train, model: {params: 1.0e9}, deepspeed: {}}\n  judge: {role: inference, deepspeed: {}}\n"
    async with open_app(several, gpus=2) as pilot:
        await until(pilot, lambda: text_of(pilot, "#memory"))
    async with open_app(SEVEN.replace("stage: 2", "stage: [1]").replace("_gpu: 4", "_gpu: many"), gpus=2) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: text_of(pilot, "#memory"))


async def test_measured_run_is_shown_beside_the_forecast_and_corrects_it(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with open_app(SEVEN, gpus=4) as pilot:
        store(pilot).machine_probed(FOUR)
        before = store(pilot).state.outlook
        assert before is not None
        remember(store(pilot).state.plan, FOUR, Taken(run="earlier", ended="2026-01-02", gpu_bytes=70 * GIB, memory_scale=1.2))
        store(pilot).edit(("name", "other"))
        await until(pilot, lambda: "measured: earlier (2026-01-02): 70 GB of a GPU (+20% of the" in text_of(pilot, "#memory"))
        after = store(pilot).state.outlook
        assert after is not None
        assert after.forecast.gpu.bytes == pytest.approx(1.2 * (before.forecast.gpu.bytes or 0), rel=1e-3)
        assert after.choices[Choice(2)].gpu.bytes == after.forecast.gpu.bytes
