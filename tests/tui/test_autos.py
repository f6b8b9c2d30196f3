"""Values of "auto" that depend on the model: shown as a number, or as an error if the launch would fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dstui.check import PlanFacts, check_plan
from dstui.plan import load
from dstui.render.target import Target
from dstui.tui.session.model_lookup import ModelConfigsOf
from tests.tui.conftest import Open, store, until

PLAN = """\
version: 1
job: {script: train.py, args: [--deepspeed, "{ds_config}"], integration: trainer}
model: {source: model}
deepspeed:
  train_micro_batch_size_per_gpu: auto
  zero_optimization: {stage: 3, reduce_bucket_size: auto, stage3_prefetch_bucket_size: auto}
"""


def findings_of_model_keys(folder: Path, config: str | None) -> dict[str, tuple[str, str]]:
    """Return the last part of each path -> severity and message of the finding about the model's key."""
    if config is not None:
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(config)
    plan = load(PLAN, base=str(folder))
    found = check_plan(Target(plan), PlanFacts(configs=ModelConfigsOf.of(plan).resolve()), world_size=2)
    return {f.path.rpartition(".")[2]: (f.severity, f.message) for f in found if f.code == "DS306"}


@pytest.mark.parametrize("config", ['{"hidden_size": 64}', '{"hidden_sizes": [32, 64]}', '{"text_config": {"hidden_size": 64}}'])
def test_auto_is_a_number_if_the_model_is_on_disk(tmp_path: Path, config: str) -> None:
    assert findings_of_model_keys(tmp_path, config) == {
        "reduce_bucket_size": ("info", '"auto" becomes hidden_size² = 4,096'),
        "stage3_prefetch_bucket_size": ("info", '"auto" becomes int(0.9 × hidden_size²) = 3,686'),
    }


def test_model_without_hidden_size_is_an_error_before_launch(tmp_path: Path) -> None:
    severity, message = findings_of_model_keys(tmp_path, '{"width": 64}')["reduce_bucket_size"]
    assert (severity, "neither hidden_size nor hidden_sizes" in message) == ("error", True)


@pytest.mark.parametrize("config", [None, "not json"])
def test_unreadable_model_leaves_the_formula(tmp_path: Path, config: str | None) -> None:
    assert findings_of_model_keys(tmp_path, config)["reduce_bucket_size"] == ("info", '"auto" becomes hidden_size²')


def test_endless_model_file_does_not_block_the_tui(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model")
    assert findings_of_model_keys(tmp_path, None)["reduce_bucket_size"] == ("info", '"auto" becomes hidden_size²')


MIXTRAL = '{"model_type": "mixtral", "hidden_size": 64, "num_local_experts": 8}'


async def test_tui_and_check_report_the_same_about_the_model(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(MIXTRAL)
    async with open_app(PLAN) as pilot:
        await until(pilot, lambda: any(f.code == "DS334" for f in store(pilot).state.findings))
        assert "becomes hidden_size² = 4,096" in " ".join(f.message for f in store(pilot).state.findings)


async def test_each_of_several_models_uses_its_own_file(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "moe").mkdir()
    (tmp_path / "moe" / "config.json").write_text(MIXTRAL)
    config = "deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3}}"
    text = f"version: 1\njob: {{script: train.py}}\nmodels:\n  small: {{{config}}}\n  large: {{model: {{source: moe}}, {config}}}\n"
    async with open_app(text) as pilot:
        await until(pilot, lambda: any(f.code == "DS334" for f in store(pilot).state.findings))
        assert [f.path for f in store(pilot).state.findings if f.code == "DS334"] == ["models.large.deepspeed.zero_optimization"]
