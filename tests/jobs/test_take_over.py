"""Reading never starts a process: readers leave a job with a killed supervisor alone, and only `take_over` acts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstui.jobs.control.stop import stop
from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.processes import TAG
from dstui.jobs.store.status import current_status
from tests.jobs.made import make_job
from tests.owned import add_to_index
from tests.waiting import wait_for

LOOK = """
import contextlib, os, sys
started = []
ACTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "os.kill")
def hook(event, args):
    write = event == "open" and isinstance(args[0], str) and args[0].startswith(sys.argv[1]) and args[2] & (os.O_WRONLY | os.O_RDWR)
    looks_at_machine = event == "subprocess.Popen" and "dstui.machine." in str(args[1])  # for the snapshot in the bundle
    if (event in ACTS and not looks_at_machine) or write:
        started.append(f"{event} {args[:2]}")
from dstui.cli import main
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.follow import Follower
sys.addaudithook(hook)
for words in (["runs"], ["runs", "--json"], ["runs", "--changes"], ["logs", "job"], ["logs", "job", "--metrics", "json"], ["diagnose", "job"],
              ["bundle", "job", "-o", "zip.zip"]):
    with contextlib.redirect_stdout(sys.stderr):
        main(words)
follower = Follower(JobFolder(sys.argv[1]))
for _ in range(3):
    follower.poll()
print(started)
"""
"""Runs every reading command, and the readers of the TUI, under an audit hook: no process started, no signal sent, nothing written."""


def orphan(path: Path, tag: str) -> JobFolder:
    """Write the folder of an own job whose supervisor was killed."""
    folder = make_job(path, state="running", tag=tag, ended=None, exit_code=None, supervisor=None)
    for rank in (0, 1):
        record = json.loads(folder.record(rank).read_text())
        folder.record(rank).write_text(json.dumps({**record, "host": os.uname().nodename, "tag": tag}))
    return add_to_index(folder, tag)


def content(folder: JobFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.path.rglob("*")) if path.is_file()}


@pytest.fixture
def living() -> Iterator[str]:
    """Yield the tag of a job that has a living process."""
    tag = f"take-over-{uuid.uuid4()}"  # a tag for each test: one that stops a job kills every process with its tag
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, TAG: tag}) as process:
        yield tag
        process.kill()


def test_reading_commands_start_and_write_nothing_for_an_orphaned_job(tmp_path: Path, living: str) -> None:
    folder = orphan(tmp_path / "job", living)
    before = content(folder)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}  # jobs of other tests may be in a queue, which `runs` asks about
    done = subprocess.run([sys.executable, "-c", LOOK, folder.path], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
    assert content(folder) == before
    assert "running" in done.stderr and "its supervisor was killed: dstui attach job starts another" in done.stderr


def test_take_over_starts_a_supervisor_if_a_process_of_the_job_lives(tmp_path: Path, living: str) -> None:
    folder = orphan(tmp_path / "job", living)
    status = current_status(folder)
    assert status and status.orphaned and not status.final
    take_over(folder)
    supervisor = wait_for(lambda: (found := folder.read_status()) and found.supervisor)
    try:
        assert supervisor.here and supervisor.here.alive
    finally:
        stop(folder)


def test_unwritten_end_is_seen_by_readers_and_written_by_take_over(tmp_path: Path) -> None:
    folder = orphan(tmp_path / "job", "gone-tag")
    before = content(folder)
    status = current_status(folder)
    assert status and status.final and status.orphaned and content(folder) == before
    taken = take_over(folder)
    assert taken and taken.state == status.state == "succeeded" and folder.has_ended
    assert (found := current_status(folder)) and not found.orphaned
