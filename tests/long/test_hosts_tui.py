"""A real training on two hosts, launched and followed in the TUI of a third; tests/hosts/test_tui.py uses scripts instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from screen_on_login import Start, job_of, launch, start, stop

from tests.job_json import status_json

__all__ = ["start"]  # a fixture
STUCK = f"{{script: {Path(__file__).with_name('crash_script.py')}, args: [--config, '{{ds_config}}', --fault, stuck, --talk]}}"
TRAINS = "{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}"


@pytest.mark.skipif(not shutil.which("pdsh"), reason="pdsh is not installed")
def test_deepspeed_trains_on_two_hosts_in_the_tui(start: Start, tmp_path: Path) -> None:
    terminal = start(job=TRAINS, cluster=", launcher: pdsh")
    launch(terminal)
    terminal.wait("✔ succeeded", "✔ h1  ended", "✔ h2  ended", "step 3/3 loss")
    assert {rank["host"] for rank in status_json(job_of(tmp_path))["ranks"].values()} == {"h1", "h2"}


def test_p_shows_where_the_ranks_of_both_hosts_are(start: Start) -> None:
    terminal = start(job=STUCK)
    launch(terminal)
    terminal.wait("step 0", timeout=120)
    terminal.settle()
    terminal.press("p")
    terminal.wait("rank 1 has not reached the all_reduce that rank 0 waits in", "crash_script.py:", timeout=60)
    print(terminal.text)
    terminal.press("\x1b")
    terminal.wait_gone("Where the ranks are")
    stop(terminal)
    terminal.wait("stopped")
