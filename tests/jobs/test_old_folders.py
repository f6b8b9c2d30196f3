"""Job folders of older versions are still read: before records had types, and before modules were moved.

old_folders/ holds two real ones of two CPU ranks each: one failed, was restarted and succeeded; the other was stopped.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import JobStatus, LaunchRecord, RestartPolicy
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.stacks import PACKAGE
from dstui.logs.time_parsing import format_iso
from tests.jobs.made import dstui
from tests.jobs.scenarios import all_events
from tests.owned import add_to_index

OLD = Path(__file__).parent / "old_folders"
FOLDERS = sorted(OLD.iterdir())


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> JobFolder:
    """Return a copy in dstui_runs, as on a user's disk."""
    return JobFolder(shutil.copytree(request.param, tmp_path / "dstui_runs" / request.param.name))


def test_old_folder_is_listed_byte_for_byte_as_before(folder: JobFolder, tmp_path: Path) -> None:
    code, out, _ = dstui("runs", "--json", cwd=tmp_path)
    (listed,) = json.loads(out)["runs"]
    assert code == 0 and listed.pop("folder") == str(folder.path)
    assert json.dumps(listed, indent=1) + "\n" == folder.status_file.read_text()


def test_records_survive_reading_and_writing_byte_for_byte(folder: JobFolder) -> None:
    status, launch = folder.read_status(), folder.read_launch()
    assert status and launch
    before = [folder.status_file.read_bytes(), folder.launch_file.read_bytes()]
    folder.write_status(status)
    folder.write_json(folder.launch_file, launch.as_json())
    assert [folder.status_file.read_bytes(), folder.launch_file.read_bytes()] == before


def test_every_command_reads_an_old_folder(folder: JobFolder, tmp_path: Path) -> None:
    assert "[1] step: 2 loss: 1.0" in dstui("logs", folder.name, cwd=tmp_path)[1]
    assert "1,0,loss,1.5" in dstui("logs", folder.name, "--metrics", "csv", cwd=tmp_path)[1]
    assert all_events(Follower(folder))[-1].exit_code == (0 if folder.name == "restarted" else 143)
    assert json.loads(dstui("diagnose", folder.path, "--json", cwd=tmp_path)[1])["kind"] == (
        "success" if folder.name == "restarted" else "stop"
    )
    assert dstui("bundle", folder.path, cwd=tmp_path)[0] == 0
    assert dstui("stop", folder.path, cwd=tmp_path)[0] == 1, "it is not in this user's index"


def test_records_have_the_expected_content() -> None:
    status, launch = JobFolder(OLD / "restarted").read_status(), JobFolder(OLD / "restarted").read_launch()
    assert status and launch
    assert (status.state, status.attempt, status.exit_code, status.final) == ("succeeded", 2, 0, True)
    assert format_iso(status.started or 0.0) == json.loads((OLD / "restarted" / "status.json").read_text())["started"]
    assert status.owner and status.owner.host == "node-1" and status.owner.here is None, "the file calls it front"
    assert {number: rank.exit_code for number, rank in status.ranks.items()} == {0: 0, 1: 0}
    assert (launch.restarts, launch.silence, launch.metrics) == (RestartPolicy(1, 0.1, ("--again",)), 300, {"own": "loss: ([0-9.]+)"})
    assert launch.script == ("train.py",) and launch.missing == ""


def test_old_job_without_a_recorded_end_is_completed_and_keeps_unknown_keys(tmp_path: Path) -> None:
    folder = add_to_index(JobFolder(shutil.copytree(OLD / "restarted", tmp_path / "job")), "a-tag")
    found = json.loads(folder.status_file.read_text())
    for rank in (0, 1):
        record = folder.record(rank, 2)
        record.write_text(json.dumps({**json.loads(record.read_text()), "tag": "a-tag"}))
    before = {**found, "state": "running", "ended": None, "exit_code": None, "tag": "a-tag", "of a newer one": 1}
    before["supervisor"] = None
    folder.status_file.write_text(json.dumps(before))
    status = take_over(folder)
    assert status and (status.state, status.exit_code, status.foreign) == ("succeeded", 0, "")
    after = json.loads(folder.status_file.read_text())
    assert list(after) == list(before) and after == {
        **before,
        "state": "succeeded",
        "exit_code": 0,
        "ended": format_iso(status.ended or 0.0),
    }


def test_record_with_few_keys_has_defaults_and_a_newer_one_starts_nothing() -> None:
    status, launch = JobStatus.from_json({"state": "failed"}), LaunchRecord.from_json({"workdir": "/w"})
    assert status and (status.attempt, status.ranks, status.tag, status.supervisor) == (1, {}, None, None)
    assert status.as_json() == {"state": "failed"}
    assert launch and launch.missing == "python" and launch.as_json() == {"workdir": "/w"}
    assert LaunchRecord.from_json({"version": 2, "workdir": "/w"}) is None
    assert LaunchRecord.from_json({"restarts": {"maxi": 1, "backoff": 0, "args": []}}) is None
    assert JobStatus.from_json({"version": 1}) is None and JobStatus.from_json({}) is None


@pytest.mark.parametrize(
    "place", ["dstui/run/shim.py", "dstui/run/supervise/shim.py", "dstui/jobs/supervise/shim.py", "dstui/jobs/rank/shim.py"]
)
def test_shim_of_an_older_version_is_recognised_by_its_old_path(place: str) -> None:
    assert PACKAGE.search(f"/home/user/dstui/{place}") and not PACKAGE.search("/home/user/project/shim.py")
