"""A queued SLURM job in the TUI of a login node: waiting with its reason, running, cancelled by a key."""

from __future__ import annotations

from pathlib import Path

import pytest
import slurm as slurming
from screen_on_login import Start, job_of, start, stop

from tests.job_json import status_json
from tests.long.test_queue import queue, slurm
from tests.waiting import wait_for

__all__ = ["slurm", "start"]  # fixtures


def test_job_waits_runs_and_is_cancelled_in_the_tui(
    start: Start, slurm: slurming.Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.variables["SLURM_CONF"])
    blocking = slurm.run("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600").strip()
    terminal = start("all:hang", cluster=", launcher: sbatch, slurm: {partition: all, extra: [--exclusive]}")
    terminal.press("8")
    terminal.wait("queue it", "queues it with SLURM")
    terminal.settle()
    terminal.press("l")
    terminal.wait("queued", "waits for free nodes (Resources)")
    slurm.run("scancel", blocking)
    terminal.wait("● h1  running", "● h2  running")
    stop(terminal)
    terminal.wait("stopped (exit status 143)", "No process is left")
    status = status_json(job_of(tmp_path))
    assert slurm.state_of(str(status["slurm_job"])) == "CANCELLED"
    wait_for(lambda: not queue(slurm))
