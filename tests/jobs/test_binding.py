"""Ranks bound to CPU cores: the printed command and the job, under the real launcher, with taskset in place of numactl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.base.files import write_atomic
from dstui.machine.snapshot import Host, Machine
from dstui.plan import Plan, load
from dstui.render.artifacts import artifacts
from dstui.render.launch import launch_spec
from dstui.render.target import Target

PLAN = "version: 1\njob: {script: rank.py, args: [--name, 'a b']}\ncluster: {cpu_binding: numactl, cpu_ranks: 2}\ndeepspeed: {train_micro_batch_size_per_gpu: 1}\n"
RANK = """import os, sys
told = f"{sys.argv[1:]} {sorted(os.sched_getaffinity(0))} {os.environ['OMP_NUM_THREADS']}"
os.write(1, (told + os.linesep).encode())  # the launcher gives both ranks one pipe: only a line of one write stays whole
"""
NUMACTL = '#!/bin/sh\ncpus=${1#--physcpubind=}; shift\nexec taskset -c "$cpus" "$@"\n'

pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(
        not shutil.which("taskset") or len(os.sched_getaffinity(0)) < 2, reason="needs taskset and two CPUs, to see a binding"
    ),
]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a Plan and its script, with numactl on the PATH."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/numactl").write_text(NUMACTL)
    (tmp_path / "bin/numactl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cores() -> tuple[str, str]:
    """Return two CPUs that this process may use."""
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return str(first), str(second)


def plan_and_machine(job: Path) -> tuple[Plan, Machine]:
    machine = Machine(source="this machine", host=Host(core_groups=cores()))
    return load(PLAN, str(job / "plan.yaml"), str(job)), machine


def expected(local_rank: int) -> str:
    return f"['--local_rank={local_rank}', '--name', 'a b'] [{cores()[local_rank]}] 1"


def test_printed_command_binds_each_rank(job: Path) -> None:
    plan, machine = plan_and_machine(job)
    files = {artifact.name: artifact for artifact in artifacts(Target(plan, machine))}
    assert files["bind.sh"].executable
    write_atomic(job / "bind.sh", files["bind.sh"].text)
    (job / "bind.sh").chmod(0o755)
    command = launch_spec(plan, machine).command()
    assert "--no_python" in command and "./bind.sh" in command
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert {line for line in ran.stdout.splitlines() if line.startswith("['--local")} == {expected(0), expected(1)}


def test_job_binds_each_rank(job: Path) -> None:
    command = [sys.executable, "-m", "dstui", "--headless", "plan.yaml", "--run-dir", "run"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = [(job / f"run/logs/rank_{rank}.log").read_text().splitlines() for rank in (0, 1)]
    affinities = {line.split("] [")[1] for lines in told for line in lines if line.startswith("['--local")}
    assert len(affinities) == 2, "each rank is on CPUs of its own"
    assert (job / "run/bind.sh").exists()
