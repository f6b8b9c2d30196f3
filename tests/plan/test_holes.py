"""Holes of a Plan: found with their paths, filled from the environment, and refused at launch while open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.plan import load
from dstui.plan.holes import fill_holes, find_holes

PLAN = """\
version: 1
name: "sweep-${STEPS}"
job: {script: probe.py, args: ["${STEPS}", "$${literal}", "a/${STEPS}/b"]}
cluster: {hosts: {localhost: 2}, env: {DS_ACCELERATOR: cpu, OUT: "${HOME_OF_X}/out"}}
run: {on_end: "echo ${DSTUI_STATE}"}
deepspeed:
  train_micro_batch_size_per_gpu: 1
  optimizer: {type: AdamW, params: {lr: "${LR}"}}
"""
ENVIRONMENT = {"STEPS": "7", "HOME_OF_X": "/x", "LR": "1e-4"}


def test_holes_are_found_outside_shell_text() -> None:
    assert [(hole.path, hole.name) for hole in find_holes(load(PLAN))] == [
        ("name", "STEPS"),
        ("job.args.0", "STEPS"),
        ("job.args.2", "STEPS"),
        ("cluster.env.OUT", "HOME_OF_X"),
        ("deepspeed.optimizer.params.lr", "LR"),
    ]


def test_holes_are_filled_and_a_number_becomes_one() -> None:
    plan = fill_holes(load(PLAN), ENVIRONMENT)
    assert not find_holes(plan) and plan.name == "sweep-7" and plan.job.args == ("7", "$${literal}", "a/7/b")
    assert plan.cluster.env["OUT"] == "/x/out" and plan.deepspeed["optimizer"]["params"]["lr"] == 1e-4
    assert plan.run.on_end == "echo ${DSTUI_STATE}"
    some = fill_holes(load(PLAN), {"STEPS": "${not a hole}"})
    assert some.job.args[0] == "$${not a hole}" and [hole.name for hole in find_holes(some)] == ["HOME_OF_X", "LR"]


@pytest.mark.launcher
def test_launch_fills_holes_from_the_environment_or_lists_them(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("import os, sys\nprint(sys.argv[-3:], os.environ['OUT'], flush=True)\n")
    (tmp_path / "plan.yaml").write_text(PLAN.replace('run: {on_end: "echo ${DSTUI_STATE}"}\n', ""))
    words = [sys.executable, "-m", "dstui", "--headless", "plan.yaml", "--run-dir", "run"]

    def launch(**environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **environment}
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    refused = launch(STEPS="7")
    assert (
        refused.returncode == 2
        and "cluster.env.OUT: ${HOME_OF_X}" in refused.stderr
        and "${STEPS}" not in refused.stderr.partition("open holes")[2]
    )
    assert not (tmp_path / "run").exists()
    done = launch(**ENVIRONMENT)
    assert done.returncode == 0 and "['7', '${literal}', 'a/7/b'] /x/out" in done.stdout
    resolved = load((tmp_path / "run" / "plan.yaml").read_text())
    assert resolved.job.args == ("7", "$${literal}", "a/7/b") and not find_holes(resolved)
