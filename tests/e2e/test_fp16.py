"""fp16 on a machine without GPUs: refused before the launch if DeepSpeed would refuse it, on CPUs with and without fp16."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.machine.probe import probe
from tests.accelerators import fp16_pythonpath

PLAN = """\
version: 1
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
deepspeed: {train_micro_batch_size_per_gpu: 1, fp16: {enabled: true}}
"""


@pytest.fixture(autouse=True, scope="module")
def _on_a_cpu() -> None:
    """Skip on machines with GPUs, where DeepSpeed's CPU accelerator is not used."""
    if probe().accelerator != "cpu":
        pytest.skip("the GPUs of this machine have fp16")


def dstui(folder: Path, fp16: bool, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "train.py").write_text("import deepspeed\n")
    env = {**os.environ, "PYTHONPATH": fp16_pythonpath(folder / "cpu", fp16=fp16)}
    return subprocess.run([sys.executable, "-m", "dstui", *args], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("fp16", [pytest.param(True, marks=pytest.mark.twin), False], ids=["a CPU with fp16", "a CPU without"])
def test_launch_reports_what_deepspeed_would_report(fp16: bool, tmp_path: Path) -> None:
    done = dstui(tmp_path, fp16, "--headless", "plan.yaml", "--dry-run")
    assert done.returncode == (0 if fp16 else 2), done.stderr
    assert ("error DS052 deepspeed.fp16.enabled: DeepSpeed has no fp16 on these CPUs" in done.stderr) is not fp16


@pytest.mark.parametrize("fp16", [True, pytest.param(False, marks=pytest.mark.twin)], ids=["a CPU with fp16", "a CPU without"])
def test_saved_machine_has_deepspeeds_answer(fp16: bool, tmp_path: Path) -> None:
    assert dstui(tmp_path, fp16, "machine", "--save", "machine.json").returncode == 0
    software = json.loads((tmp_path / "machine.json").read_text())["software"]
    assert (software["fp16"], software["bf16"]) == (fp16, True)
    assert dstui(tmp_path, fp16, "check", "plan.yaml", "--machine", "machine.json").returncode == (0 if fp16 else 1)


def test_doctor_learns_it_from_the_import(tmp_path: Path) -> None:
    checks = json.loads(dstui(tmp_path, False, "doctor", "plan.yaml", "--json").stdout)["checks"]
    assert any("has no fp16" in check["seen"] for check in checks if check["id"] == "plan" and check["verdict"] == "fail"), checks
