"""Headless checks the hosts before a multi-host launch: each obstacle is named with its host and fix."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from farm import SSH, Farm, etc

PLAN = """\
version: 1
name: looked at
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
cluster: {hostfile: hosts, master_port: 29473, env: {NCCL_SOCKET_IFNAME: ib7}}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Write a Plan with a hostfile; its script does not exist."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "hosts").write_text("h1 slots=1\nh2 slots=1\nh9 slots=1\n")
    return tmp_path


def test_problems_of_hostfile_hosts_stop_the_launch_with_fixes(farm: Farm, job: Path) -> None:
    folder = job / "run"
    began = time.monotonic()
    ran = farm.run("login", sys.executable, "-m", "dstui", "--headless", str(job / "plan.yaml"), "--run-dir", str(folder), timeout=120)
    assert time.monotonic() - began < 100
    assert (ran.returncode, folder.exists()) == (2, False)
    for words in (
        "h9: error: reach: its name cannot be resolved\n    do: add it to /etc/hosts",
        "h1, h2: error: interface: NCCL_SOCKET_IFNAME=ib7 names no interface of this host, which has eth0\n    do: name one of them",
        "h1, h2: error: script: train.py: No such file or directory\n    do: copy the job's folder there",
        "nothing was started: the hosts are not ready (--no-preflight starts anyway)",
    ):
        assert words in ran.stderr, ran.stderr


def test_two_names_of_one_machine_stop_the_launch(farm: Farm, job: Path) -> None:
    (job / "train.py").touch()
    (job / "hosts").write_text(f"h1 slots=1\n{farm.addresses['h1']} slots=1\n")
    ran = farm.run("login", sys.executable, "-m", "dstui", "--headless", str(job / "plan.yaml"), timeout=120)
    assert ran.returncode == 2 and not (job / "dstui_runs").exists()
    assert f"{farm.addresses['h1']}: error: names: is the same machine as h1" in ran.stderr, ran.stderr
    assert f"take h1 or {farm.addresses['h1']} out" in ran.stderr


ALIASES = """
Host big
  HostName 10.79.0.1
  HostKeyAlias h1
"""
TELL = "import os\nprint('rank', os.environ['RANK'], 'meets at', os.environ['MASTER_ADDR'])\n"


def test_names_known_only_to_ssh_are_enough(farm: Farm, job: Path) -> None:
    """Uses an ssh alias and a user name: ranks connect to the first host's address, and resolve no name."""
    (job / "train.py").write_text(TELL)
    (job / "hosts").write_text("big slots=1\nroot@h2 slots=1\n")
    plan = "{hostfile: hosts, env: {DS_ACCELERATOR: cpu}}"
    (job / "plan.yaml").write_text(PLAN.replace("{hostfile: hosts, master_port: 29473, env: {NCCL_SOCKET_IFNAME: ib7}}", plan))
    with etc(farm, "login", "ssh_config", SSH + ALIASES):
        ran = farm.run("login", sys.executable, "-m", "dstui", "--headless", str(job / "plan.yaml"), timeout=120, cwd=job)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {line for line in ran.stdout.splitlines() if "meets at" in line} == {
        "[0 big    ] rank 0 meets at 10.79.0.1",
        "[1 root@h2] rank 1 meets at 10.79.0.1",
    }


def test_doctor_reaches_hosts_of_the_plans_hostfile(farm: Farm, job: Path) -> None:
    bare = job / "python"
    bare.symlink_to(Path(sys.executable).resolve())  # without packages: importing them on every host is not tested here
    (job / "plan.yaml").write_text((job / "plan.yaml").read_text().replace("job: {", f"job: {{python: {bare}, "))
    ran = farm.run("login", sys.executable, "-m", "dstui", "doctor", str(job / "plan.yaml"), "--trust-python", timeout=180)
    assert ran.returncode == 1
    assert "✖ reach" in ran.stdout and "h9: its name cannot be resolved" in ran.stdout
    assert "h2: answers over ssh, without a password" in ran.stdout


def test_many_hosts_are_checked_in_the_time_of_the_slowest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub of ssh takes two seconds: 64 hosts in sequence would take two minutes."""
    stub = tmp_path / "bin/ssh"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\ncat >/dev/null\nsleep 2\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    stub.chmod(0o755)
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "hosts").write_text("".join(f"node{number} slots=8\n" for number in range(64)))
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    began = time.monotonic()
    command = [sys.executable, "-m", "dstui", "--headless", str(tmp_path / "plan.yaml"), "--run-dir", str(tmp_path / "run")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{time.monotonic() - began:.1f} s for 64 hosts")
    assert time.monotonic() - began < 64
    assert ran.returncode == 2 and ran.stderr.count("error: reach: it asks for a password") == 1, "one line for all of them"
    assert "node0, node1, node2, node3 and 60 more: error" in ran.stderr
