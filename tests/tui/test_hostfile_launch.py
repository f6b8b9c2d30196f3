"""A Plan with a hostfile, launched from the screen: what the hostfile holds reaches the launcher."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tui.conftest import PLAN, Open, screen, store, until
from tests.waiting import wait_for


async def test_a_launch_from_the_screen_uses_the_hostfile(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "hosts").write_text("localhost slots=3\n")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    plan = PLAN.replace("deepspeed:\n", "cluster: {hostfile: hosts}\ndeepspeed:\n", 1).replace("job:\n", "job:\n  python: ./python\n")
    async with open_app(plan) as pilot:
        store(pilot).machine_probed(replace(store(pilot).state.machine, recorded=False))
        target = store(pilot).state.launch_target()
        assert (target.pool, target.world_size) == ({"localhost": 3}, 3)
        await pilot.press("8")
        await until(pilot, lambda: "3 ranks" in screen(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "Start these programs?" in screen(pilot))  # the interpreter is one that nobody has agreed to
        await pilot.press("y")
        await until(pilot, lambda: list(tmp_path.glob("dstui_runs/*/status.json")) or "Not launched" in screen(pilot))
        (status,) = tmp_path.glob("dstui_runs/*/status.json")
        command = wait_for(lambda: json.loads(status.read_text())["command"])
        assert command[command.index("--num_gpus") + 1] == "3"
        wait_for(lambda: json.loads(status.read_text())["state"] == "failed")
