"""Several models in one Plan: each has its own configuration, and the Plan can be viewed from each."""

from __future__ import annotations

import pytest

from dstui.plan import PlanError, load
from dstui.tui.session.state import History

BOTH = """\
version: 1
job: {script: distill.py}
model: {sequence_length: 512, source: ./base}
models:
  student:   # learns
    deepspeed:
      train_micro_batch_size_per_gpu: 4
      zero_optimization: {stage: 2, reduce_bucket_size: 5e8}
  teacher:
    role: inference
    model: {params: 7.0e9}
    deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3}}
"""


def test_plan_has_a_configuration_per_model() -> None:
    plan = load(BOTH)
    assert list(plan.configurations) == ["student", "teacher"]
    assert plan.configurations["student"]["zero_optimization"]["reduce_bucket_size"].spelling == "5e8"
    assert (plan.models["student"].role, plan.models["teacher"].role) == ("train", "inference")
    assert list(load("version: 1\njob: {script: a}\n").configurations) == [""]


def test_focused_plan_has_the_models_configuration() -> None:
    teacher = load(BOTH).focused_on("teacher")
    assert teacher.get("deepspeed.zero_optimization.stage") == 3 == teacher.deepspeed["zero_optimization"]["stage"]
    assert teacher.model is not None
    assert (teacher.model.params, teacher.model.source, teacher.model.sequence_length) == (7e9, None, 512)
    assert teacher.line_of("deepspeed.zero_optimization.stage") == 12
    student = load(BOTH).focused_on("student").model
    assert student is not None and student.source == "./base"


def test_edit_of_a_focused_model_changes_its_lines_and_undo_is_shared() -> None:
    plan = load(BOTH)
    history = History(plan)
    history.push(plan.focused_on("teacher").set("deepspeed.zero_optimization.offload_param.device", "cpu"))
    history.push(history.current.focused_on("student").set("deepspeed.zero_optimization.stage", 1))
    edited = history.current.text
    assert edited.splitlines()[:7] == BOTH.splitlines()[:7]
    assert history.current.get("models.teacher.deepspeed.zero_optimization.offload_param.device") == "cpu"
    assert history.current.get("models.student.deepspeed.zero_optimization.stage") == 1
    assert history.undo() and history.undo() is plan


def test_emptied_section_is_removed() -> None:
    plan = load(BOTH).focused_on("teacher").set("deepspeed.bf16.enabled", True)
    assert plan.unset("deepspeed.bf16.enabled").get("deepspeed.bf16") is None


def test_removed_model_loses_the_focus() -> None:
    plan = load(BOTH).focused_on("teacher").unset("models.teacher")
    assert plan.focus == "student"
    assert load(BOTH).focused_on("nobody").focus == "student"
    assert load(BOTH + "deepspeed: {train_batch_size: 2}\n").focused_on("nobody").focus == ""
    assert load(BOTH).focused_on("teacher").unfocused == load(BOTH)


@pytest.mark.parametrize(
    ("models", "where", "message"),
    [
        ("{a: {rol: train}}", "models.a.rol", "unknown key; did you mean 'role'?"),
        ("{a: {role: judge}}", "models.a.role", "'judge' is not one of train, inference"),
        ("{a: {model: {params: many}}}", "models.a.model.params", "expected a number"),
        ("{a: {deepspeed: 3}}", "models.a.deepspeed", "expected a mapping (key: value)"),
        ("{a: 3}", "models.a", "expected a mapping (key: value)"),
        ("[a, b]", "models", "expected a mapping (key: value)"),
        ("{'../a': {}}", "models.../a", "a model's name begins with a letter"),
        ("{a: {}, A: {}}", "models.A", "it differs from a in upper and lower case only"),
    ],
)
def test_errors_in_models_have_their_position(models: str, where: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        load(f"version: 1\njob: {{script: a}}\nmodels: {models}\n")
    assert [(f.path, f.message.startswith(message)) for f in caught.value.findings] == [(where, True)]
