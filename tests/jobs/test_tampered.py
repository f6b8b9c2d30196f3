"""What somebody does to the records of a job while it runs: it ends all the same, its status becomes final, and no supervisor hangs or dies."""

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
from tests.jobs.lab import Lab, end_of, gone, of_job, ready
from tests.waiting import wait_for

DEEP = "[" * 200_000


def put(path: Path, text: str) -> None:
    """In one step, as an editor does."""
    new = path.with_name(".new")
    new.write_text(text)
    new.replace(path)


def instead(path: Path, make: Callable[[Path], object]) -> None:
    """Something else in the place of a file."""
    new = path.with_name(".new")
    make(new)
    new.replace(path)


def records(folder: JobFolder) -> None:
    """Records of ranks that are no records, of ranks that there are and of one that there is not, and a request that is none."""
    put(folder.record(7), json.dumps({**json.loads(folder.record(0).read_text()), "rank": 7, "master": 5}))
    put(folder.record(0), DEEP)
    put(folder.record(1), '{"master": 5, "pid": "many"}')
    put(folder.stop_file, DEEP)


def pipes(folder: JobFolder) -> None:
    """Pipes from which nobody reads and into which nobody writes."""
    instead(folder.status_file, os.mkfifo)
    instead(folder.events_file, os.mkfifo)
    instead(folder.record(0), os.mkfifo)


def devices(folder: JobFolder) -> None:
    """Files without an end."""
    for path in (folder.status_file, folder.stop_file, folder.record(1)):
        instead(path, lambda new: new.symlink_to("/dev/zero"))


def deleted(folder: JobFolder) -> None:
    """The records of all ranks."""
    shutil.rmtree(folder.record(0).parent)


TAMPERINGS = {"records that are none": records, "pipes": pipes, "devices": devices, "records that are gone": deleted}


@pytest.mark.parametrize("tamper", TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_job_whose_records_are_tampered_with_ends_with_the_truth(tmp_path: Path, tamper: Callable[[JobFolder], None]) -> None:
    go = tmp_path / "go"
    folder = Lab(tmp_path).start("all:say ready", f"all:wait {go}", "all:exit 0")
    ready(folder)
    wait_for(lambda: status_json(folder)["state"] == "running")
    supervisor, processes = status_json(folder)["supervisor"]["pid"], of_job(folder)
    tamper(folder)
    go.touch()
    wait_for(lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes))
    wait_for(lambda: gone(supervisor))
    status = end_of(folder)
    assert (status["state"], status["exit_code"]) == ("succeeded", 0)
    assert status["supervisor"]["pid"] == supervisor, "no other one was needed"
    assert folder.status_file.is_file() and not folder.status_file.is_symlink()


def test_a_request_to_stop_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = Lab(tmp_path).start("all:say ready", f"all:wait {go}", "all:exit 0")
    ready(folder)
    put(folder.stop_file, '{"exit_code": 99999}')
    go.touch()
    assert (end_of(folder)["state"], end_of(folder)["exit_code"]) == ("succeeded", 0)
