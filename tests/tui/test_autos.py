"""A look into the model: what "auto" becomes as a number, or that the launch will fail for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dstui.check import check
from dstui.plan import load
from dstui.tui.session.auto_lookup import ModelOf, filled_in

PLAN = """\
version: 1
job: {script: train.py, args: [--deepspeed, "{ds_config}"], integration: trainer}
model: {source: model}
deepspeed:
  train_micro_batch_size_per_gpu: auto
  zero_optimization: {stage: 3, reduce_bucket_size: auto, stage3_prefetch_bucket_size: auto}
"""


def said(folder: Path, config: str | None) -> dict[str, tuple[str, str]]:
    """Last part of the path -> severity and message of what is said about the model's keys."""
    if config is not None:
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(config)
    plan = load(PLAN, base=str(folder))
    found = filled_in(plan, check(plan, world_size=2), ModelOf.of(plan).resolve())
    return {f.path.rpartition(".")[2]: (f.severity, f.message) for f in found if f.code == "DS306"}


@pytest.mark.parametrize("config", ['{"hidden_size": 64}', '{"hidden_sizes": [32, 64]}', '{"text_config": {"hidden_size": 64}}'])
def test_the_number_is_said_where_the_model_is_here(tmp_path: Path, config: str) -> None:
    assert said(tmp_path, config) == {
        "reduce_bucket_size": ("info", '"auto" becomes hidden_size² = 4,096'),
        "stage3_prefetch_bucket_size": ("info", '"auto" becomes int(0.9 × hidden_size²) = 3,686'),
    }


def test_a_model_without_a_hidden_size_is_an_error_before_the_launch(tmp_path: Path) -> None:
    severity, message = said(tmp_path, '{"d_model": 64}')["reduce_bucket_size"]
    assert (severity, "neither hidden_size nor hidden_sizes" in message) == ("error", True)


@pytest.mark.parametrize("config", [None, "not json"])
def test_a_model_that_cannot_be_looked_into_leaves_the_formula(tmp_path: Path, config: str | None) -> None:
    assert said(tmp_path, config)["reduce_bucket_size"] == ("info", '"auto" becomes hidden_size²')


def test_a_source_that_would_never_end_does_not_stop_the_screen(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model")
    assert said(tmp_path, None)["reduce_bucket_size"] == ("info", '"auto" becomes hidden_size²')
