"""The TUI on the host login, with a Plan for the hosts h1 and h2."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from farm import Farm
from remote_job import BEHAVE

from dstui.jobs.store.folder import JobFolder
from tests.terminal import Terminal
from tests.waiting import wait_for

Start = Callable[..., Terminal]


@pytest.fixture
def start(farm: Farm, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts dstui on login with a Plan of two hosts, in a terminal. Jobs are stopped afterwards."""
    opened: list[Terminal] = []

    def begin(*behaviour: str, job: str = "", cluster: str = "") -> Terminal:
        texts = ", ".join(json.dumps(word) for word in behaviour)
        env = {"DS_ACCELERATOR": "cpu"}
        (tmp_path / "plan.yaml").write_text(
            "version: 1\nname: far\n"
            f"job: {job or f'{{script: {BEHAVE}, args: [{texts}], optimizer: script}}'}\n"
            f"cluster: {{hosts: {{h1: 1, h2: 1}}, env: {json.dumps(env)}{cluster}}}\n"
            "deepspeed: {train_micro_batch_size_per_gpu: 1, optimizer: {type: AdamW, params: {lr: 1e-3, torch_adam: true}}}\n"
        )
        names = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config"), "DS_ACCELERATOR": "cpu"}
        inside = ["env", "-C", str(tmp_path), *(f"{name}={value}" for name, value in names.items()), sys.executable, "-m", "dstui"]
        terminal = Terminal(farm.command("login", [*inside, "plan.yaml", "--no-oracle"]), env=dict(os.environ))
        opened.append(terminal)
        terminal.wait("1 · Machine", "Host and software", "q quit")
        return terminal

    yield begin
    for host in ("h1", "h2"):
        farm.cable(host, plugged=True)
    for path in tmp_path.glob("dstui_runs/*"):
        names = [f"XDG_STATE_HOME={tmp_path / 'state'}"]
        farm.run("login", "env", *names, sys.executable, "-m", "dstui", "stop", str(path), timeout=120)
    for terminal in opened:
        terminal.close()


def launch(terminal: Terminal) -> None:
    """Go from the form to the run, confirming all questions."""
    terminal.press("8")
    terminal.wait("Before the launch", "l launch")
    terminal.settle()
    terminal.press("l")
    while "job folder" not in terminal.text:
        terminal.pump(0.1)
        if "That is all, of 2 hosts" in terminal.text:
            terminal.press("l")
            terminal.wait_gone("That is all, of 2 hosts")


def stop(terminal: Terminal) -> None:
    """Stop the job and confirm."""
    terminal.press("s")
    terminal.wait("y  stop it")
    terminal.press("y")


def job_of(path: Path) -> JobFolder:
    """Return the launched job."""
    return JobFolder(wait_for(lambda: next(iter(path.glob("dstui_runs/*")), None)))
