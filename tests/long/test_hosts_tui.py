"""A real training on two hosts, launched and followed in the TUI of a third; tests/hosts/test_tui.py uses scripts instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from screen_on_login import Start, job_of, launch, start

from tests.job_json import status_json

__all__ = ["start"]  # a fixture
TRAINS = "{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}"


@pytest.mark.skipif(not shutil.which("pdsh"), reason="pdsh is not installed")
def test_deepspeed_trains_on_two_hosts_in_the_tui(start: Start, tmp_path: Path) -> None:
    terminal = start(job=TRAINS, cluster=", launcher: pdsh")
    launch(terminal)
    terminal.wait("✔ succeeded", "✔ h1  ended", "✔ h2  ended", "step 3/3 loss")
    assert {rank["host"] for rank in status_json(job_of(tmp_path))["ranks"].values()} == {"h1", "h2"}
