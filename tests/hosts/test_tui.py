"""The screen over two hosts, in a real terminal on the host login: looked at before the launch, followed, lost, stopped, confirmed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from far import BEHAVE
from farm import Farm

from dstui.run.jobs.folder import JobFolder
from tests.job_json import status_json
from tests.terminal import Terminal
from tests.waiting import wait_for

Start = Callable[..., Terminal]
TRAINS = "{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}"


@pytest.fixture
def start(farm: Farm, tmp_path: Path) -> Iterator[Start]:
    """dstui on a Plan of two hosts, in a terminal on login; what it started is stopped."""
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
        terminal = Terminal(farm.command("login", [*inside, "plan.yaml"]), env=dict(os.environ))
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
    """From the form to the run, past whatever the hosts lack."""
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
    """Stop the job, and say yes."""
    terminal.press("s")
    terminal.wait("y  stop it")
    terminal.press("y")


def job_of(path: Path) -> JobFolder:
    """The job that was launched."""
    return JobFolder(wait_for(lambda: next(iter(path.glob("dstui_runs/*")), None)))


@pytest.mark.deadline
def test_two_hosts_are_followed_one_is_lost_and_what_could_not_be_stopped_there_is_stopped_later(
    start: Start, farm: Farm, tmp_path: Path
) -> None:
    terminal = start("all:count 100000 0.05")
    launch(terminal)
    terminal.wait("● h1  running", "● h2  running")
    terminal.press("u")
    terminal.wait("h1    r0 ", "h2    r1 ")
    job = job_of(tmp_path)
    farm.cable("h2", plugged=False)
    terminal.wait("▲ h2  unreachable since ", "1 · unknown")
    assert terminal.text.index("▲ h2") < terminal.text.index("● h1")
    stop(terminal)
    terminal.wait("stopped (exit status 143)", "Stopped, but: not confirmed on h2")
    assert status_json(job)["hosts"]["h1"]["state"] == "ended"
    farm.cable("h2", plugged=True)
    wait_for(lambda: farm.run("login", "ssh", "h2", "true").returncode == 0)
    stop(terminal)
    terminal.wait("Stopped. No process is left.")
    terminal.wait_gone("▲ h2")
    assert status_json(job)["hosts"]["h2"]["state"] == "ended"


def test_a_host_that_is_not_ready_is_named_before_the_launch_and_nothing_is_started(start: Start, farm: Farm, tmp_path: Path) -> None:
    terminal = start("all:hang")
    farm.cable("h2", plugged=False)
    terminal.press("8")
    terminal.wait("Before the launch", "l launch")
    terminal.settle()
    terminal.press("l")
    terminal.wait("of 2 hosts have answered", "Waiting for h")
    terminal.wait("✖ h2  reach: it does not answer on the network", "l  launch all the same")
    terminal.press("b")
    terminal.wait_gone("Are the hosts ready?")
    assert not (tmp_path / "dstui_runs").exists()


@pytest.mark.launcher
@pytest.mark.whole_deepspeed
@pytest.mark.skipif(not shutil.which("pdsh"), reason="there is no pdsh here")
def test_deepspeed_trains_on_two_hosts_before_ones_eyes(start: Start, tmp_path: Path) -> None:
    terminal = start(job=TRAINS, cluster=", launcher: pdsh")
    launch(terminal)
    terminal.wait("✔ succeeded", "✔ h1  ended", "✔ h2  ended", "step 3/3 loss")
    assert {rank["host"] for rank in status_json(job_of(tmp_path))["ranks"].values()} == {"h1", "h2"}
