"""What `dstui render` writes, used without dstui on pretend hosts: launch.sh from any folder, job.sbatch under a real SLURM."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm as managing
from farm import Farm

SCRIPT = """\
import os, runpy, signal, sys, time
if "--resume" in sys.argv:
    sys.argv.remove("--resume")
elif "--wait" in os.environ.get("HOW", ""):
    print("waiting", flush=True)
    time.sleep(600)
sys.argv[0] = "train_tiny"
runpy.run_module("dstui.examples.train_tiny", run_name="__main__", alter_sys=True)
"""
PLAN = """\
version: 1
name: two hosts
job: {script: train.py, args: [--steps, "2", --deepspeed_config, "{ds_config}"]}
cluster: {hosts: {h1: 1, h2: 1}, env: {DS_ACCELERATOR: cpu, OMP_NUM_THREADS: "1"}}
run: {restarts: {max: 1, args: [--resume]}}
deepspeed:
  train_micro_batch_size_per_gpu: 2
  optimizer: {type: AdamW, params: {lr: 1e-3, torch_adam: true}}
  zero_optimization: {stage: 1}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A Plan for two hosts, and its script."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def render(job: Path, *words: str) -> str:
    """`dstui render`; its output."""
    command = [sys.executable, "-m", "dstui", "render", str(job / "plan.yaml"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def ended(text: str) -> list[str]:
    """The ranks that have trained to the end."""
    return sorted(re.findall(r"rank (\d): done", text))


def test_the_rendered_folder_trains_from_another_machine_and_another_folder(
    farm: Farm, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    render(job, "-o", str(job / "out"))
    moved = tmp_path / "it's moved"
    shutil.move(job / "out", moved)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "hostfile").write_text("nowhere slots=8\n")
    (elsewhere / ".deepspeed_env").write_text("# DeepSpeed dies of a comment\n")
    monkeypatch.chdir(elsewhere)
    ran = farm.run("login", "sh", str(moved / "launch.sh"), timeout=300)
    assert (ran.returncode, ended(ran.stdout)) == (0, ["0", "1"]), ran.stdout + ran.stderr


def test_a_host_that_the_script_does_not_know_is_refused(farm: Farm, job: Path) -> None:
    render(job, "-o", str(job / "out"))
    ran = farm.run("login", "sh", str(job / "out/launch.sh"), "h9")
    assert ran.returncode == 2 and "there is no host h9: h1 h2" in ran.stderr


@pytest.fixture
def slurm(farm: Farm, tmp_path: Path) -> Iterator[managing.Slurm]:
    """SLURM on the pretend hosts."""
    if reason := managing.missing():
        pytest.skip(reason)
    with managing.Slurm(farm, tmp_path / "slurm") as running:
        yield running


def test_a_slurm_job_that_is_told_to_end_is_queued_again_and_trains_on_both_nodes(
    slurm: managing.Slurm, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = render(job, "--only", "sbatch").replace("\nset -eu", "\nexport HOW=--wait\nset -eu")
    (job / "job.sbatch").write_text(script)
    monkeypatch.chdir(job)
    number = slurm.run("sbatch", "--parsable", "job.sbatch").strip()
    log = job / f"two-hosts-{number}.log"
    until(lambda: log.is_file() and log.read_text().count("waiting") == 2, slurm, number)
    slurm.run("scancel", "--batch", "--signal=USR1", number)
    until(lambda: slurm.state_of(number) == "PENDING", slurm, number)  # SLURM would wait two minutes before it starts it again
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    until(lambda: slurm.state_of(number) in ("COMPLETED", "FAILED", "TIMEOUT"), slurm, number)
    text = log.read_text()
    assert (slurm.state_of(number), ended(text)) == ("COMPLETED", ["0", "1"]), text
    assert {line[0] for line in text.splitlines() if "done" in line} == {"0", "1"}, "one rank on each node"


def until(met: object, slurm: managing.Slurm, number: str, seconds: float = 300) -> None:
    """Wait for something that SLURM's job does."""
    assert callable(met)
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, slurm.run("scontrol", "show", "job", number)
        time.sleep(0.2)
