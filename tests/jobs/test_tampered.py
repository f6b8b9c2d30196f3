"""Records of a job that are changed while it runs: it ends normally, its status becomes final, and no supervisor hangs or dies."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dstui.jobs.store.folder import JobFolder
from tests.job_json import status_json
from tests.jobs.lab import Lab, final_status, has_ended, job_processes, ready
from tests.waiting import wait_for

DEEP = "[" * 200_000


def put(path: Path, text: str) -> None:
    """Replace a file atomically, as an editor does."""
    new = path.with_name(".new")
    new.write_text(text)
    new.replace(path)


def replace_file(path: Path, make: Callable[[Path], object]) -> None:
    """Replace a file by something else."""
    new = path.with_name(".new")
    make(new)
    new.replace(path)


def records(folder: JobFolder) -> None:
    """Write invalid records of existing and missing ranks, and an invalid request."""
    put(folder.record(7), json.dumps({**json.loads(folder.record(0).read_text()), "rank": 7, "master": 5}))
    put(folder.record(0), DEEP)
    put(folder.record(1), '{"master": 5, "pid": "many"}')
    put(folder.stop_file, DEEP)


def pipes(folder: JobFolder) -> None:
    """Put pipes that nobody reads or writes in place of files."""
    replace_file(folder.status_file, os.mkfifo)
    replace_file(folder.events_file, os.mkfifo)
    replace_file(folder.record(0), os.mkfifo)


def devices(folder: JobFolder) -> None:
    """Put endless device files in place of files."""
    for path in (folder.status_file, folder.stop_file, folder.record(1)):
        replace_file(path, lambda new: new.symlink_to("/dev/zero"))


def deleted(folder: JobFolder) -> None:
    """Delete the records of all ranks."""
    shutil.rmtree(folder.record(0).parent)


TAMPERINGS = {"records that are none": records, "pipes": pipes, "devices": devices, "records that are gone": deleted}


@pytest.mark.parametrize("tamper", TAMPERINGS.values(), ids=TAMPERINGS)
def test_job_with_tampered_records_ends_correctly(tmp_path: Path, tamper: Callable[[JobFolder], None]) -> None:
    go = tmp_path / "go"
    folder = Lab(tmp_path).start("all:say ready", f"all:wait {go}", "all:exit 0")
    ready(folder)
    wait_for(lambda: status_json(folder)["state"] == "running")
    supervisor, processes = status_json(folder)["supervisor"]["pid"], job_processes(folder)
    tamper(folder)
    go.touch()
    wait_for(lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes))
    wait_for(lambda: has_ended(supervisor))
    status = final_status(folder)
    assert (status["state"], status["exit_code"]) == ("succeeded", 0)
    assert status["supervisor"]["pid"] == supervisor, "no other supervisor was needed"
    assert folder.status_file.is_file() and not folder.status_file.is_symlink()


def test_invalid_stop_request_is_ignored(tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = Lab(tmp_path).start("all:say ready", f"all:wait {go}", "all:exit 0")
    ready(folder)
    put(folder.stop_file, '{"exit_code": 99999}')
    go.touch()
    assert (final_status(folder)["state"], final_status(folder)["exit_code"]) == ("succeeded", 0)
