"""Checkpoints in the TUI: found, inspected, compared to the Plan, consolidated with progress, and cancelled cleanly."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.checkpoints import convert as conversion
from dstui.documents.plan_files import read_plan
from dstui.tui.app import DstuiApp
from tests.machines import NO_GPU
from tests.tui.conftest import PLAN, screen, until
from tests.tui.conftest import _skip_unseen_work as _skip_unseen_work  # noqa: PLC0414 - a fixture

pytestmark = [pytest.mark.launcher, pytest.mark.xdist_group("checkpoints")]
Made = Callable[[int], Path]


@asynccontextmanager
async def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, ranks: int = 2) -> AsyncIterator[Pilot[int]]:
    """Open the app with a stage 2 Plan for this number of ranks, in this folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    (folder / "plan.yaml").write_text(PLAN.replace("deepspeed:\n", f"cluster: {{hosts: {{localhost: {ranks}}}}}\ndeepspeed:\n", 1))
    app = DstuiApp(read_plan(folder / "plan.yaml"), folder / "plan.yaml", NO_GPU, reference=False)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.session.state.checked)
        yield pilot


async def look(pilot: Pilot[int]) -> None:
    await pilot.press("C")
    await until(pilot, lambda: "another folder" in screen(pilot))
    await pilot.press("1")
    await until(pilot, lambda: "To resume from it" in screen(pilot))


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if ".config" not in path.parts}


async def test_content_and_fit_to_the_plan_are_shown_and_looking_writes_nothing(
    checkpoint: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(2)
    async with opened(tmp_path, monkeypatch) as pilot:
        before = everything(tmp_path)
        await look(pilot)
        for text in ("2 ranks, ZeRO stage 2", "every rank's file is there", "training would resume from step 3"):
            assert text in screen(pilot)
        assert everything(tmp_path) == before


async def test_different_number_of_ranks_and_missing_shard_are_reported(
    checkpoint: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(2)
    next(path for path in (folder / "global_step3").iterdir() if "rank_1" in path.name).unlink()
    async with opened(tmp_path, monkeypatch, ranks=4) as pilot:
        await look(pilot)
        assert "NOT WHOLE" in screen(pilot) and "2 ranks wrote it, the Plan has 4" in screen(pilot)
        assert "32-bit" not in screen(pilot), "only possible actions are offered"


async def begin(pilot: Pilot[int], folder: Path) -> None:
    """Start the conversion from the dialog; its cost is shown first."""
    await look(pilot)
    await pilot.press("f")
    await until(pilot, lambda: "Where to?" in screen(pilot), 15)
    await pilot.press("enter")
    await until(pilot, lambda: "It takes about" in screen(pilot) and "of memory" in screen(pilot))
    assert not (folder / "stage2-fp32").exists()
    await pilot.press("y")


async def test_weights_are_consolidated_after_their_cost_was_shown(
    checkpoint: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(2)
    async with opened(tmp_path, monkeypatch) as pilot:
        await begin(pilot, tmp_path)
        await until(pilot, lambda: "Written:" in screen(pilot), 120)
        assert (tmp_path / "stage2-fp32" / "model.safetensors").is_file()
        assert not list(tmp_path.glob(f"{conversion.TEMPORARY}*"))


@pytest.mark.parametrize("how", ["escape", "the end of the session"])
async def test_cancelled_conversion_leaves_nothing(how: str, checkpoint: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(2)
    pid = tmp_path / "pid"
    endless = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); print('Processing', flush=True); time.sleep(1000)"
    monkeypatch.setattr(conversion, "_command", lambda *_: [sys.executable, "-c", endless])
    async with opened(tmp_path, monkeypatch) as pilot:
        await begin(pilot, tmp_path)
        await until(pilot, lambda: "Processing" in screen(pilot))
        assert list(tmp_path.glob(f"{conversion.TEMPORARY}*"))
        if how == "escape":
            await pilot.press("escape")
            await until(pilot, lambda: "nothing was written" in screen(pilot))
    child, deadline = Path(f"/proc/{pid.read_text()}"), time.monotonic() + 60
    while child.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not child.exists()
    assert not list(tmp_path.glob(f"{conversion.TEMPORARY}*")) and not (tmp_path / "stage2-fp32").exists()


async def test_dialog_explains_how_to_resume_and_does_it(checkpoint: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(2)
    (tmp_path / "train.py").write_text(
        "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--resume_from')\n"
    )
    async with opened(tmp_path, monkeypatch) as pilot:
        await look(pilot)
        assert "--resume_from" in screen(pilot)
        await pilot.press("g")
        await until(pilot, lambda: pilot.app.step.id == "review")
        assert pilot.app.session.state.plan.job.args[-2:] == ("--resume_from", str(folder))
        await pilot.press("z")
        await until(pilot, lambda: "--resume_from" not in pilot.app.session.state.plan.job.args)
    (tmp_path / "train.py").write_text("import deepspeed\n")
    async with opened(tmp_path, monkeypatch) as pilot:
        await look(pilot)
        assert "engine.load_checkpoint(" in screen(pilot) and "g  go on" not in screen(pilot)
