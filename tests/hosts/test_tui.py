"""The TUI with a job on two hosts, in a real terminal on the host login: preflight, following, a lost host, stopping."""

from __future__ import annotations

from pathlib import Path

import pytest
from farm import Farm
from screen_on_login import Start, job_of, launch, start, stop

from tests.job_json import status_json
from tests.waiting import wait_for

__all__ = ["start"]  # a fixture


@pytest.mark.deadline
def test_two_hosts_are_followed_one_is_lost_and_is_stopped_later(start: Start, farm: Farm, tmp_path: Path) -> None:
    terminal = start("all:count 100000 0.3")
    launch(terminal)
    terminal.wait("● h1  running", "● h2  running")
    terminal.press("u")
    terminal.wait("h1    r0 ", "h2    r1 ")
    job = job_of(tmp_path)
    farm.cable("h2", plugged=False)
    terminal.wait("▲ h2  unreachable for ", "1 · unknown", "● h1  running")
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


def test_host_that_is_not_ready_is_named_before_launch_and_nothing_starts(start: Start, farm: Farm, tmp_path: Path) -> None:
    terminal = start("all:hang")
    farm.cable("h2", plugged=False)
    terminal.press("8")
    terminal.wait("Before the launch", "l launch")
    terminal.settle()
    terminal.press("l")
    terminal.wait("of 2 hosts have answered", "Waiting for h")
    terminal.wait("✖ h2  reach: it does not answer on the network", "l  launch anyway")
    terminal.press("b")
    terminal.wait_gone("Are the hosts ready?")
    assert not (tmp_path / "dstui_runs").exists()
