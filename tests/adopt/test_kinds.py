"""The kind of a file follows from its root, and is the same for every command."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dstui.adopt.signs import kind_of
from dstui.documents.open import open_document
from tests.command import dstui

PLAN = """\
version: 1
name: tiny
job: {script: t.py, args: ["{ds_config}"], optimizer: script}
model: {params: 7.0e9}
cluster: {hosts: {localhost: 2}}
deepspeed: {train_micro_batch_size_per_gpu: 3, gradient_clipping: 1.0}
"""
VALUES = {
    "version": 1,
    "name": "tiny",
    "job": {"script": "t.py", "args": ["{ds_config}"], "optimizer": "script"},
    "model": {"params": 7e9},
    "cluster": {"hosts": {"localhost": 2}},
    "deepspeed": {"train_micro_batch_size_per_gpu": 3, "gradient_clipping": 1.0},
}
FORMS = {
    "plan.yaml": PLAN,
    "plan.json": json.dumps(VALUES, indent=2),
    "one-line.json": json.dumps(VALUES),
    "json-in.yaml": "# mine\n" + json.dumps(VALUES),
    "flow.yaml": "{version: 1, " + ", ".join(PLAN.splitlines()[1:]) + "}",
    "lines.json": PLAN,
}


@pytest.mark.parametrize("name", list(FORMS)[1:])
def test_plan_in_any_yaml_style_is_equal_for_every_command(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("print(1)\n")
    for file in ("plan.yaml", name):
        (tmp_path / file).write_text(FORMS[file])
    for words in (["render", "--only", "command"], ["forecast", "--gpu-memory", "80GB"], ["--headless", "--dry-run"]):
        wanted, found = (dstui(*words, file, cwd=tmp_path) for file in ("plan.yaml", name))
        assert (found.stdout, found.returncode) == (wanted.stdout, wanted.returncode) and found.stdout, found.stderr
    checked = json.loads(dstui("check", "--json", "plan.yaml", name, cwd=tmp_path).stdout)["files"]
    assert [one["kind"] for one in checked] == ["plan", "plan"] and checked[0]["diagnostics"] == checked[1]["diagnostics"]
    assert dstui("import", name, cwd=tmp_path).stdout == FORMS[name]


def test_file_opened_by_the_tui_is_saved_to_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(FORMS["plan.json"])
    opened = open_document(str(path))
    assert (opened.path, opened.made, opened.plan.job.script) == (path, False, "t.py")


@pytest.mark.parametrize("name", ["ds.json", "accelerate.yaml", "accelerate.json"])
def test_configuration_is_recognised_by_every_command(name: str, tmp_path: Path) -> None:
    stage = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 3}
    values = (
        stage if name == "ds.json" else {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}, "mixed_precision": "bf16"}
    )
    (tmp_path / name).write_text(
        json.dumps(values) if name.endswith("json") else "\n".join(f"{k}: {json.dumps(v)}" for k, v in values.items())
    )
    kind = json.loads(dstui("check", "--json", name, cwd=tmp_path).stdout)["files"][0]["kind"]
    assert kind == ("ds_config" if name == "ds.json" else "accelerate")
    rendered = dstui("render", name, "--only", "ds_config", cwd=tmp_path)
    assert json.loads(rendered.stdout)["zero_optimization"]["stage"] == 2, rendered.stderr
    forecast = dstui("forecast", name, "--set", "model.params=7e9", "--gpu-memory", "80GB", cwd=tmp_path)
    assert "ZeRO-2" in forecast.stdout, forecast.stderr


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"job": {"script": "t.py",}', "plan"),  # invalid JSON: the reader reports it as an error of a Plan
        ("{version: 1, name: x, job: {script: ${X}}}", "plan"),
        ('{"version": 1, "model": {"params": 1}}', "plan"),
        ('{"version": 2, "zero_optimization": {}}', "ds_config"),
        ('// of the cluster\n{"zero_optimization": {"deepspeed": 1}}', "ds_config"),
        ('{"a": "job: x", /* job: */ "b": 1}', "ds_config"),
        ("[1]", "ds_config"),
        ('{"compute_environment": "LOCAL_MACHINE"}', "accelerate"),
        ("h1 slots=2\n", "hostfile"),
        ("A=1\n", "env"),
        ("deepspeed --num_gpus 2 train.py\n", "command"),
        ("", "plan"),
    ],
)
def test_root_of_the_file_decides_its_kind(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize("text", ["{" * 100_000, "/**/" * 50_000, "# " * 100_000, "{" + '"\\' * 100_000, "{a" + " " * 200_000])
def test_endless_text_is_classified_quickly(text: str) -> None:
    began = time.process_time()
    kind_of(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    ['#!/bin/sh\n[ "$D" = 1 ] && set -x\ndeepspeed t.py\n', '[ -z "$X" ] && X=1\ndeepspeed t.py\n', "{ deepspeed t.py; } | tee l\n", "bash run.sh 8\n"],
)  # fmt: skip
def test_shell_text_that_starts_like_json_is_a_command(text: str) -> None:
    assert kind_of(text) == "command"
