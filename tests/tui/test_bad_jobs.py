"""Job folders in any state in the TUI: half-written, full of garbage, deleted while open. None of them ends the session."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dstui.jobs.store.folder import JobFolder
from tests.tui.conftest import Open, attach, log_is_shown, screen, until
from tests.tui.test_reason import job

KEYS = ("1", "a", "e", "d", "escape", "p", "escape", "m", "escape", "x", "9", "J", "escape", "9")


def garbage(folder: JobFolder) -> None:
    for file in (folder.log(1), folder.launcher_log, folder.events_file, folder.launch_file, folder.path / "plan.yaml", folder.record(1)):
        file.write_bytes(b"5\n[1]\n{}\nnull\n" + random.Random(7).randbytes(50_000))


def no_logs(folder: JobFolder) -> None:
    shutil.rmtree(folder.log(0).parent)


def folder_for_log(folder: JobFolder) -> None:
    folder.log(1).unlink()
    folder.log(1).mkdir()


def truncated_status(folder: JobFolder) -> None:
    folder.status_file.write_text('{"state": "fai')


def another_version(folder: JobFolder) -> None:
    folder.status_file.write_text('{"version": 9, "state": ["x"], "ranks": [1], "attempt": "first", "started": 7}')


def deleted_folder(folder: JobFolder) -> None:
    shutil.rmtree(folder.path)


BEFORE = [(spoil, False) for spoil in (garbage, no_logs, folder_for_log, truncated_status, another_version)]


@pytest.mark.parametrize(("spoil", "meanwhile"), [*BEFORE, (garbage, True), (truncated_status, True), (deleted_folder, True)])
async def test_bad_job_folder_does_not_end_the_session(
    open_app: Open, tmp_path: Path, spoil: Callable[[JobFolder], None], meanwhile: bool
) -> None:
    folder = job(tmp_path / "job", state="running" if meanwhile else "failed")
    if not meanwhile:
        spoil(folder)
    async with open_app() as pilot:
        await attach(pilot, folder)
        await until(pilot, lambda: log_is_shown(pilot))
        if meanwhile:
            spoil(folder)
        for key in KEYS:
            await pilot.press(key)
            await pilot.pause(0.1)  # a tick of the pane
        assert pilot.app.is_running and "9 Run" in screen(pilot)
