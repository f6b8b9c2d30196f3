"""Random kills of each process of a job, and of the TUI that shows it: `dstui runs` is right, and a stop leaves nothing.

DSTUI_KILLS=N sets how many (200 take about a quarter of an hour on two cores); DSTUI_SEED=N repeats a series.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.logs.log_folder import FINAL
from tests.job_json import refreshed_json, status_json
from tests.jobs.lab import Lab, has_ended, job_processes, ready
from tests.jobs.scenarios import LAUNCHER, NODE, buffers
from tests.terminal import Terminal

KILLS = int(os.environ.get("DSTUI_KILLS", "200"))
SEED = int(os.environ.get("DSTUI_SEED", str(random.randrange(10**6))))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
VICTIMS = ("front", "tui", "supervisor", "runner", "launcher", "shim", "rank")
LONGEST = 5.0
"""Seconds after the start, or after the ranks are ready, within which the kill happens."""
TRUTH = 5.0
"""Seconds within which the status must be right, and the job in the state that follows from the kill."""
LIVES = 1.5
"""Seconds after which a job that survives the kill is checked."""


def victim(folder: JobFolder, kind: str, front: int) -> int | None:
    """Return the pid of one process of this kind, if there is one yet."""
    if kind == "front":
        return front
    if kind == "supervisor":
        found = status_json(folder).get("supervisor")
        return found["pid"] if found else None
    words = {"runner": LAUNCHER, "launcher": NODE}
    processes = job_processes(folder, words[kind]) if kind in words else job_processes(folder, "--local_rank=1")
    shims = [
        process for process in processes if kind in ("shim", "rank") and ("shim.py" in " ".join(process.cmdline())) == (kind == "shim")
    ]
    chosen = processes if kind in words else [process for process in shims if NODE not in process.cmdline()]
    return chosen[0].pid if chosen else None


def expected(kind: str, name: signal.Signals) -> str:
    """Return the state of a job whose ranks run, after this process gets this signal."""
    if kind == "front":
        return "stopped"
    if kind == "supervisor":
        return "stopped" if name in (signal.SIGINT, signal.SIGTERM) else "running"
    return "running" if kind in ("runner", "tui") else "failed"


def settled(folder: JobFolder, wanted: str | None) -> bool:
    """Return whether the job is in the state that follows from the kill and its status says so (only the latter if no rank ran)."""
    state = refreshed_json(folder)["state"]
    return (state in FINAL) == (not job_processes(folder)) and wanted in (None, state)


def pause(seconds: float, screen: Terminal | None) -> None:
    """Let time pass; the TUI would stop if nobody read its output."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if screen is None or not screen.pump(left):
            time.sleep(min(left, 0.05))


def one_kill(number: int, path: Path) -> dict[str, Any]:
    """Start a job, kill something, look, stop, look again."""
    dice = random.Random(f"{SEED} {number}")
    kind, name, moment, early = dice.choice(VICTIMS), dice.choice(SIGNALS), dice.uniform(0.0, LONGEST), dice.random() < 0.3
    front = subprocess.Popen(["sleep", "1000"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # noqa: PLW1509
    screen = None
    try:
        folder = Lab(path).start("all:buffer", "all:listen", "all:hang", owner_pid=front.pid)
        if not early:
            ready(folder)
            moment /= 1 if kind == "tui" else 4
        if kind == "tui":
            screen = Terminal([sys.executable, "-m", "dstui", "attach", str(folder.path)])
        pause(moment, screen)  # the moment is random
        pid = screen.pid if screen else victim(folder, kind, front.pid)
        if pid is not None:
            psutil.Process(pid).send_signal(name)
        if kind == "front":
            front.wait(TRUTH)
        told = {
            "number": number,
            "killed": kind if pid else f"no {kind} yet",
            "signal": name.name,
            "moment": f"{moment:.2f} s after the {'start' if early else 'ranks'}",
        }
        wanted = expected(kind, name) if pid is not None and not early else None
        began = time.monotonic()
        if wanted == "running":
            time.sleep(LIVES)  # long enough to have died
        while not settled(folder, wanted) and time.monotonic() - began < 3 * TRUTH:
            time.sleep(0.1)
        told |= {"true after": round(time.monotonic() - began, 2), "then": refreshed_json(folder)["state"]}
        port = int(status_json(folder)["command"][status_json(folder)["command"].index("--master_port") + 1])
        report = stop(folder)
        status = refreshed_json(folder)
        supervisor = status["supervisor"]["pid"]
        left = [process.cmdline() for process in job_processes(folder)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        wait_until_gone(supervisor)
        return {**told, "state": status["state"], "code": status["exit_code"], "left": left + report.left, "buffers": list(buffers(folder))}
    finally:
        if screen:
            screen.close()
        front.kill()
        front.wait()


def wait_until_gone(pid: int) -> None:
    """Wait for the supervisor, which ends after its last message."""
    deadline = time.monotonic() + TRUTH
    while not has_ended(pid):
        assert time.monotonic() < deadline, "the supervisor stays"
        time.sleep(0.02)


def test_status_is_right_after_every_kill_and_a_stop_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(int(os.environ.get("DSTUI_SIDE_BY_SIDE", "3"))) as pool:
        for number in range(KILLS):
            (tmp_path / str(number)).mkdir()
        outcomes = list(pool.map(lambda number: one_kill(number, tmp_path / str(number)), range(KILLS)))
    wrong = [
        outcome
        for outcome in outcomes
        if outcome["left"]
        or outcome["buffers"]
        or outcome["state"] not in FINAL
        or outcome["code"] is None
        or outcome["true after"] > TRUTH
    ]
    with capsys.disabled():
        print(f"\nseed {SEED}: {KILLS} kills, {len(wrong)} wrong")
        for outcome in outcomes if len(outcomes) <= 40 else wrong:
            print("  ", {name: value for name, value in outcome.items() if name not in ("left", "buffers") or value})
    assert not wrong
