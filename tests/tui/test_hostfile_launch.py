"""Launch and probe from the TUI: the hostfile reaches the launcher, and the result of a probe is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.tui.dialogs.reading import LinesViewer
from tests.tui.conftest import PLAN, Open, letters, notices, screen, store, text_of, until
from tests.waiting import wait_for


async def test_launch_uses_the_hostfile(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        await until(pilot, lambda: letters(pilot) == "ny")  # nobody has given consent for the interpreter
        await pilot.press("y")
        await until(pilot, lambda: list(tmp_path.glob("dstui_runs/*/status.json")) or notices(pilot, "error"))
        (status,) = tmp_path.glob("dstui_runs/*/status.json")
        command = wait_for(lambda: json.loads(status.read_text())["command"])
        assert command[command.index("--num_gpus") + 1] == "3"
        wait_for(lambda: json.loads(status.read_text())["state"] == "failed")


@pytest.mark.launcher
async def test_p_on_review_probes_the_plan_and_shows_the_result(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plan = PLAN.replace("deepspeed:\n", "cluster: {hosts: {localhost: 2}}\ndeepspeed:\n", 1).replace(
        "    enabled: true\n", "    enabled: false\n"
    )
    async with open_app(plan) as pilot:
        (tmp_path / "train.py").write_text("print('no engine here')\n")
        store(pilot).machine_probed(replace(store(pilot).state.machine, recorded=False))
        await pilot.press("8")
        await until(pilot, lambda: "2 ranks" in screen(pilot))
        await pilot.press("P")
        await until(pilot, lambda: isinstance(pilot.app.screen, LinesViewer) or "Not " in screen(pilot))
        assert "the script ended without calling deepspeed.initialize" in " ".join(text_of(pilot, "#help").split())
        assert not list(tmp_path.glob("dstui_runs*")), "a probe leaves no run"
