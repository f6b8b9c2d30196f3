"""The agent of a host as a process, with the input of a connection."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dstui.hosts import agent as agents
from dstui.hosts.agent import Gauge
from dstui.hosts.connection import BOOT, source
from dstui.hosts.ssh import failure
from tests.waiting import wait_for


def start_agent(folder: Path, command: str, **more: Any) -> subprocess.Popen[bytes]:
    """Start an agent whose connection ends after it has started a shell command."""
    agent = subprocess.Popen([sys.executable, "-u", "-I", "-S", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    place = {"folder": "/tmp/dstui-tag", "name": folder.name, "known": str(folder), "ranks": []}
    opening = {**place, "tag": "tag", "attempt": 1, "have": {}, "make": True, "files": {}, "needs": {}, "stays": False}
    start = {"do": "start", "attempt": 1, "argv": ["/bin/sh", "-c", command], "cwd": "/", "env": {}}
    assert agent.stdin and agent.stdout
    agent.stdin.write(source() + json.dumps({**opening, **more}).encode() + b"\n")
    agent.stdin.flush()
    while b'"hello"' not in agent.stdout.readline():
        pass
    agent.stdin.write(json.dumps(start).encode() + b"\n")
    agent.stdin.close()
    wait_for((folder / "begun-1").exists)
    return agent


def test_agent_ends_with_its_connection_but_in_a_slurm_step_after_its_child(tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f"until test -e {go}; do sleep 0.05; done"
    stays, leaves = start_agent(tmp_path / "stays", command, stays=True), start_agent(tmp_path / "leaves", command)
    try:
        assert leaves.wait(20) == 0
        stays.send_signal(signal.SIGTERM)  # how SLURM announces the end of a step
        assert stays.poll() is None and not (tmp_path / "stays/ended-1").exists()
    finally:
        go.touch()
    assert stays.wait(20) == 0
    for name in ("stays", "leaves"):
        wait_for((tmp_path / name / "ended-1").exists)


def has_ended(gauge: Gauge) -> bool:
    return gauge.newest() == b"" and gauge.process is None


def test_gpu_monitor_may_end_by_itself_and_is_ended_once(tmp_path: Path) -> None:
    for python in (sys.executable, str(tmp_path / "none")):
        gauge = Gauge(python, str(tmp_path / "gone.py"))
        wait_for(partial(has_ended, gauge))
        gauge.end()


def test_end_of_the_command_is_recorded_once_the_disk_has_room_unless_the_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def replace(old: str, new: str) -> None:
        if full:
            raise full.pop()
        Path(old).rename(new)

    monkeypatch.setattr(agents.os, "replace", replace)
    monkeypatch.setattr(agents.time, "sleep", lambda _seconds: None)
    agents.record_end(str(tmp_path), {"attempt": 2, "exit_code": 3, "text": ""})
    assert [path.name for path in tmp_path.iterdir()] == ["ended-2"] and not full
    agents.record_end(str(tmp_path / "removed"), {"attempt": 2})


def test_old_python_is_named_before_it_parses_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 6, 8, "final", 0))
    with pytest.raises(SystemExit) as ended:
        exec(BOOT)
    assert failure("h1", str(ended.value)).problem == "its Python is too old"
