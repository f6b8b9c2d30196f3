"""Job folders that are half-written, of another version, on a read-only disk, or deleted while the job runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstui.diagnosis import diagnose_job
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import find
from dstui.jobs.store.status import current_status, rebuilt
from tests.job_json import refreshed_json, status_json, write_status_json
from tests.jobs.lab import Lab, final_status, job_processes, ready
from tests.jobs.made import dstui, make_job
from tests.owned import add_to_index
from tests.waiting import wait_for

UNREADABLE = {
    "half-written": '{"state": "runn',
    "empty": "",
    "of another form": '{"version": 1, "state": 3, "ranks": [{"id": 0}]}',
    "no object": "[1, 2]",
}


def job_with_records(path: Path) -> JobFolder:
    """Write an ended job whose ranks left complete records."""
    folder = make_job(path, state="failed", exit_code=3)
    folder.launch_file.write_text("{}")
    for rank, code in ((0, 1), (1, 3)):
        record = {"rank": rank, "host": "h1", "pid": 1, "tag": "a-tag", "started": 1767323000.0, "ended": 1767323105.0 - rank}
        folder.record(rank).write_text(json.dumps({**record, "exit_code": code, "world_size": 2}))
    return add_to_index(folder)


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_invalid_status_is_rebuilt_from_rank_records_and_backed_up(tmp_path: Path, text: str) -> None:
    folder = job_with_records(tmp_path / "job")
    folder.status_file.write_text(text)
    status = refreshed_json(folder)
    assert (status["state"], status["exit_code"], status["started"]) == ("failed", 3, "2026-01-02T03:03:20.000+00:00")
    assert {rank: facts["exit_code"] for rank, facts in status["ranks"].items()} == {"0": 1, "1": 3}
    assert status_json(folder) == status
    assert folder.path.joinpath("status.unreadable").read_text() == text


@pytest.mark.parametrize("text", ['{"version": 9, "state": 3, "ranks": [{"id": 0}]}', '{"version": 9, "state": "running", "tag": "a-tag"}'])
def test_status_of_newer_version_is_only_read(tmp_path: Path, text: str) -> None:
    folder = job_with_records(tmp_path / "job")
    folder.status_file.write_text(text)
    before = sorted(folder.path.iterdir())
    assert "newer dstui (version 9" in refreshed_json(folder)["foreign"] and "newer dstui" in stop(folder).refused
    assert folder.status_file.read_text() == text and sorted(folder.path.iterdir()) == before


def test_every_command_answers_without_a_status(tmp_path: Path) -> None:
    folder = job_with_records(tmp_path / "job")
    folder.log(1).write_text("ValueError: a bad shard\n")
    for command, said, code in (("logs", "[1] ValueError", 0), ("stop", "had ended before: failed, exit status 3", 0), ("stacks", "", 1)):
        folder.status_file.unlink(missing_ok=True)
        found, out, _ = dstui(command, "job", cwd=tmp_path)
        assert found == code and said in out
    folder.status_file.unlink(missing_ok=True)
    assert dstui("diagnose", "job", cwd=tmp_path)[0] in (0, 1)
    assert find(str(folder.path)) == folder


def test_nothing_is_made_up_without_records(tmp_path: Path) -> None:
    folder = add_to_index(make_job(tmp_path / "job"))
    folder.status_file.write_text("{")
    assert rebuilt(folder) is None and current_status(folder) is None
    assert folder.status_file.read_text() == "{"
    report = stop(folder)
    assert report.state == "lost" and "half-written" in report.left[0]
    code, _, err = dstui("stop", "job", cwd=tmp_path)
    assert code == 2 and "no rank has left a record" in err


@pytest.mark.launcher
def test_job_with_lost_status_keeps_running_and_is_supervised_again(tmp_path: Path) -> None:
    folder = Lab(tmp_path).start("all:hang")
    ready(folder)
    supervisor = status_json(folder)["supervisor"]["pid"]
    subprocess.run(["kill", "-KILL", str(supervisor)], check=True)
    folder.status_file.write_text('{"state": "run')
    wait_for(
        lambda: refreshed_json(folder).get("supervisor", None) not in (None, {}) and status_json(folder)["supervisor"]["pid"] != supervisor
    )
    assert status_json(folder)["state"] == "running"
    assert stop(folder).left == [] and status_json(folder)["state"] == "stopped"


def test_lines_of_a_missing_log_are_not_guessed(tmp_path: Path) -> None:
    folder = job_with_records(tmp_path / "job")
    for rank in (0, 1):
        folder.log(rank).unlink()
    folder.record(1).write_text(folder.record(1).read_text().replace('"exit_code": 3', '"exit_code": 1'))
    found = diagnose_job(folder)
    assert found.cause is None and found.evidence


def test_folder_in_place_of_a_log_is_no_log(tmp_path: Path) -> None:
    folder = job_with_records(tmp_path / "job")
    folder.log(1).unlink()
    folder.log(1).mkdir()
    code, out, _ = dstui("logs", "job", cwd=tmp_path)
    assert code == 0 and "[0] step 1 loss 2.0" in out


@pytest.mark.launcher
def test_deleted_folder_of_a_running_job_is_recreated_and_the_job_can_be_stopped(tmp_path: Path) -> None:
    folder = Lab(tmp_path).start("all:hang")
    ready(folder)
    wait_for(lambda: status_json(folder).get("state") == "running")
    tag = status_json(folder)["tag"]
    shutil.rmtree(folder.path)
    wait_for(lambda: status_json(folder).get("state") == "running")
    assert status_json(folder)["tag"] == tag and len(job_processes(folder, "all:hang")) >= 2
    assert "the job folder was deleted" in wait_for(lambda: folder.events_file.exists() and folder.events_file.read_text())
    report = stop(folder)
    assert (report.state, report.exit_code, report.left) == ("stopped", 143, [])
    assert final_status(folder)["ranks"]["0"]["exit_code"] == 143


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that becomes read-only with its content when `mount` is called in it."""
    place = tmp_path / "disk"
    place.mkdir()
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def mount(place: Path) -> None:
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    if subprocess.run(["sh", "-c", script, "sh", str(place)], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not possible here")


def test_end_of_a_job_is_reported_from_a_read_only_disk(read_only: Path, tmp_path: Path) -> None:
    folder = job_with_records(read_only / "job")
    folder.lock_file.touch()
    host = {"pid": 1, "host": None, "ticks": 0}
    write_status_json(
        folder, {**status_json(folder), "state": "running", "exit_code": None, "ended": None, "tag": "a-tag", "supervisor": host}
    )
    mount(read_only)
    assert (refreshed_json(folder)["state"], refreshed_json(folder)["exit_code"]) == ("failed", 3)
    for command in ("logs", "diagnose"):
        code, out, _ = dstui(command, read_only / "job", cwd=tmp_path)
        assert code in (0, 1) and out
    code, out, _ = dstui("bundle", read_only / "job", "-o", tmp_path / "b.zip", cwd=tmp_path)
    assert code == 0 and "b.zip" in out
