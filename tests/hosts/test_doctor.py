"""`dstui doctor` on real hosts: two hosts with five planted problems."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from farm import Farm

PLAN = """\
version: 1
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
cluster:
  hosts: {h1: 2, h2: 2}
  master_port: 29471
deepspeed:
  train_micro_batch_size_per_gpu: 1
  optimizer: {type: AdamW, params: {lr: 1e-4, torch_adam: true}}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Write a Plan for two hosts, with its script."""
    (tmp_path / "train.py").write_text("print('training')\n")
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def doctor(farm: Farm, *words: str) -> tuple[int, dict[tuple[str, str], list[dict[str, Any]]]]:
    """Return the exit status, and the results by check and host."""
    ran = farm.run("login", sys.executable, "-m", "dstui", "doctor", *words, "--json", timeout=180)
    assert ran.stderr == "", ran.stderr
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in json.loads(ran.stdout)["checks"]:
        results.setdefault((result["id"], result["host"]), []).append(result)
    return ran.returncode, results


@contextlib.contextmanager
def name_missing(farm: Farm) -> Iterator[None]:
    """Remove the name h1 from h2."""
    file = farm.etc("h2") / "hosts"
    before = file.read_text()
    file.write_text("".join(line for line in before.splitlines(keepends=True) if not line.endswith(" h1\n")))
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def mounted(farm: Farm, *words: str, host: str = "h2") -> Iterator[None]:
    """Mount something over a path of a host."""
    assert farm.run(host, "mount", *words).returncode == 0
    try:
        yield
    finally:
        assert farm.run(host, "umount", words[-1]).returncode == 0


@contextlib.contextmanager
def port_taken(farm: Farm) -> Iterator[None]:
    """Listen on rank 0's port."""
    code = "import socket; s = socket.create_server(('', 29471)); print('ready', flush=True)\nwhile True: s.accept()"
    with subprocess.Popen(
        farm.command("h1", [sys.executable, "-c", code]), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            os.killpg(holder.pid, 9)


def test_five_problems_are_named_with_their_fixes(farm: Farm, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # the suite's PYTHONPATH would not reach the hosts, which would be a sixth problem
    (job / "plan.yaml").write_text(PLAN.replace("master_port", "master_addr: h1\n  master_port"))  # so that the name is needed
    other = tmp_path / "other.py"
    other.write_text("print('yesterday')\n")
    cache = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache"  # sshd uses this home, whatever $HOME says
    cache.mkdir(exist_ok=True)
    lock = cache / "torch_extensions/py311_cpu/cpu_adam/lock"
    with (
        name_missing(farm),
        mounted(farm, "--bind", str(other), str(job / "train.py")),
        mounted(farm, "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"),
        mounted(farm, "-t", "tmpfs", "tmpfs", str(cache), host="h1"),  # where a killed build may have left a lock
        mounted(farm, "-t", "tmpfs", "tmpfs", str(cache)),
        port_taken(farm),
    ):
        assert farm.run("h2", "install", "-D", "/dev/null", str(lock)).returncode == 0
        assert farm.run("h2", "touch", "-d", "1 hour ago", str(lock)).returncode == 0
        status, found = doctor(farm, str(job / "plan.yaml"))
    assert status == 1
    wrong = {key: results[0]["verdict"] for key, results in found.items() if results[0]["verdict"] in ("warn", "fail")}
    assert wrong == {
        ("names", "h2"): "fail",
        ("script", "h1"): "fail",
        ("script", "h2"): "fail",
        ("shm", "h2"): "warn",
        ("extension-cache", "h2"): "fail",
        ("port", "h1"): "fail",
        ("port", "h2"): "fail",
    } | {key: verdict for key, verdict in wrong.items() if key[0] in ("open-files", "cpus", "memory", "folder")}
    assert all(results[0]["fix"] for key, results in found.items() if key in wrong)
    assert "python" in found["port", "h1"][0]["seen"] and found["extension-cache", "h2"][0]["fix"] == f"rm {lock}"
    assert found["deepspeed", "h2"][0]["verdict"] == found["reach", "h2"][0]["verdict"] == "ok"
    assert list(job.glob(".dstui-doctor*")) == [], "nothing is left behind"


def test_host_without_interpreter_differs_from_one_without_packages(farm: Farm, job: Path) -> None:
    python = job / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (job / "plan.yaml").write_text(PLAN.replace("job: {", "job: {python: venv/bin/python, "))
    with mounted(farm, "-t", "tmpfs", "tmpfs", str(job / "venv")):
        _, found = doctor(farm, str(job / "plan.yaml"), "--trust-python")
    assert "no interpreter at" in found["python", "h2"][0]["seen"]
    assert found["python", "h1"][0]["verdict"] == "ok"
    assert found["shared-folder", "h2"][0]["verdict"] == "ok"


def test_unreadable_plan_exits_with_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dstui", "doctor", str(tmp_path / "none.yaml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stdout == "" and "no such file" in ran.stderr


def test_this_machine_is_examined_in_seconds(tmp_path: Path) -> None:
    began = time.monotonic()
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-m", "dstui", "doctor"], env=environment, capture_output=True, text=True, check=False)
    assert time.monotonic() - began < 60
    lines = ran.stdout.splitlines()
    assert ran.stderr == "" and ran.returncode == int("✖" in ran.stdout)
    assert "✔ reach            this machine" in lines and lines[-1].endswith("not applicable")
