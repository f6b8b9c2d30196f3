"""Several models rendered from one Plan: a file, a variable and a placeholder for each, and code that selects each plugin."""

from __future__ import annotations

import ast
import json

import pytest
import yaml

from dstui.jobs.control.launch_record import metrics_of
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.plan import load
from dstui.render.artifacts import artifacts
from dstui.render.code import render_code
from dstui.render.target import Target
from tests.machines import NO_GPU

PLAN = """\
version: 1
job: {{script: d.py, integration: {}, args: [--student, {{ds_config:student}}, "--teacher={{ds_config:teacher}}"]}}
cluster: {{hosts: {{localhost: 2}}}}
models:
  student: {{deepspeed: {{train_micro_batch_size_per_gpu: auto, bf16: {{enabled: auto}}, zero_optimization: {{stage: 2}}}}}}
  teacher: {{role: inference, deepspeed: {{train_micro_batch_size_per_gpu: 1, zero_optimization: {{stage: 3}}}}}}
"""


def target(integration: str = "accelerate") -> Target:
    return Target(load(PLAN.format(integration)), NO_GPU)


def test_each_model_has_a_file() -> None:
    files = {artifact.name: artifact.text for artifact in artifacts(target())}
    assert [name for name in files if name.endswith((".json", ".yaml"))] == [
        "ds_config_student.json",
        "ds_config_teacher.json",
        "accelerate.yaml",
    ]
    assert yaml.safe_load(files["accelerate.yaml"])["deepspeed_config"] == {}, "a key here would be an error for every plugin"
    assert json.loads(files["ds_config_teacher.json"])["zero_optimization"] == {"stage": 3}


def test_each_file_reaches_the_script_by_placeholder_and_variable() -> None:
    spec = target().launch
    assert spec.argv("/job/ds_config.json")[-3:] == ["--student", "/job/ds_config_student.json", "--teacher=/job/ds_config_teacher.json"]
    assert "./ds_config_student.json" in spec.command()
    env = spec.environment("/job/ds_config.json")
    assert env["DSTUI_DS_CONFIG_STUDENT"] == "/job/ds_config_student.json"
    assert "DSTUI_DS_CONFIG" not in env


def test_each_accelerate_plugin_knows_its_stage() -> None:
    env = target().launch.environment()
    assert env["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert not {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "ACCELERATE_DEEPSPEED_ZERO3_INIT", "ACCELERATE_MIXED_PRECISION"} & set(env)


@pytest.mark.parametrize("integration", ["accelerate", "deepspeed", "trainer"])
def test_printed_code_is_python_and_names_every_model(integration: str) -> None:
    found = render_code(target(integration).plan)
    ast.parse(found)
    assert "student" in found and "teacher.eval()" in found and "teacher_optimizer" not in found


def test_accelerate_code_selects_plugins_and_a_second_trained_model_has_its_accelerator() -> None:
    lines = render_code(target().plan).splitlines()
    at = [n for n, line in enumerate(lines) if "select_deepspeed_plugin" in line or ".prepare(" in line]
    assert [lines[n].split("  #")[0] for n in at] == [
        'accelerator.state.select_deepspeed_plugin("student")',
        "student, student_optimizer, loader, student_scheduler = accelerator.prepare(student, student_optimizer, loader, student_scheduler)",
        'accelerator.state.select_deepspeed_plugin("teacher")',
        "teacher = accelerator.prepare(teacher)",
    ]
    both = render_code(load(PLAN.format("accelerate").replace("role: inference, ", "")))
    assert "accelerator_teacher = Accelerator()" in both and "accelerator_teacher.backward(teacher_loss)" in both


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 3/40 student_loss 2.07 teacher_loss 1.5e-1", {"student_loss": 2.07, "teacher_loss": 0.15}),
        ("{'student/loss': nan, 'step': 4}", {"student_loss": float("nan")}),
        ("teacher loss: 3", {"teacher_loss": 3.0}),
        ("the students lost 3", {}),
    ],
)
def test_metrics_of_each_model_are_read(line: str, found: dict[str, float]) -> None:
    measured = {m.name: m.value for m in Measure(metrics_of(target().plan))(RankView("here"), 0, line) if m.name != "loss"}
    assert repr(measured) == repr(found)
