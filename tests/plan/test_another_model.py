"""A Plan with one model gets several: the configuration keeps its text, and the Plan stays valid."""

from __future__ import annotations

import pytest

from dstui.check import check_plan
from dstui.plan import load
from dstui.plan.another_model import add_model, name_problem
from dstui.render.target import Target

PLAN = """\
version: 1
job: {script: train.py, integration: accelerate, optimizer: script, args: [--config, "{ds_config}", "1.10"]}
# what DeepSpeed reads
deepspeed:
  train_micro_batch_size_per_gpu: auto   # from the loader
  gradient_accumulation_steps: 2

  bf16: {enabled: true}
  zero_optimization:
    stage: 2
    reduce_bucket_size: 5e8
cluster: {hosts: {localhost: 2}}   # here
"""


def test_configuration_moves_to_the_present_model_with_comments() -> None:
    plan = add_model(load(PLAN), "teacher", "inference", "student")
    indented = "".join(
        f"    {line}\n" if line else "\n"
        for line in PLAN.split("# what DeepSpeed reads\n")[1].split("cluster:", maxsplit=1)[0].splitlines()
    )
    assert f"models:\n  student:\n{indented}  teacher:\n    role: inference\n" in plan.text
    assert plan.text.endswith("cluster: {hosts: {localhost: 2}}   # here\n")
    assert plan.job.args == ("--config", "{ds_config:student}", "1.10")
    assert plan.models["student"].deepspeed == load(PLAN).deepspeed
    assert plan.models["teacher"].deepspeed == {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }


@pytest.mark.parametrize("role", ["train", "inference"])
@pytest.mark.parametrize(
    "text",
    [
        PLAN,
        PLAN.replace("\n", "\r\n"),
        "{version: 1, job: {script: t.py, integration: accelerate, optimizer: script}, deepspeed: {train_micro_batch_size_per_gpu: 2, bf16: {enabled: true}, zero_optimization: {stage: 1}}}",
        "version: 1\njob: {script: t.py, integration: accelerate, optimizer: script}\nmodels: {}\ndeepspeed: {zero_optimization: {stage: 3}, train_micro_batch_size_per_gpu: 1}",
        "version: 1\njob: {script: t.py, integration: accelerate, optimizer: script}\n",
    ],
)
def test_result_is_valid_and_takes_another_model(text: str, role: str) -> None:
    plan = add_model(add_model(load(text), "b", role, "a"), "c", "train", "")
    assert list(plan.models) == ["a", "b", "c"] and not plan.unfocused.deepspeed
    assert [f.message for f in check_plan(Target(plan), world_size=2) if f.severity == "error"] == []


def test_inference_model_gets_no_clipping_finding() -> None:
    plan = add_model(load("version: 1\njob: {script: t.py}\ndeepspeed: {train_batch_size: 2}\n"), "teacher", "inference", "student")
    assert [f.path for f in check_plan(Target(plan), world_size=2) if f.code == "DS111"] == ["models.student.deepspeed.gradient_clipping"]


def test_invalid_name_is_reported() -> None:
    assert (
        name_problem("", {}) and name_problem("2nd", {}) and name_problem("a b", {}) and "exists" in name_problem("Teacher", {"teacher": 1})
    )
    assert name_problem("critic_2", {"teacher": 1}) == ""
