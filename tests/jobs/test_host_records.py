"""What a job's records say about its hosts, and how it is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.jobs.store.events import HostChange
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import HostStatus, JobStatus, RankStatus
from dstui.jobs.store.status import initial
from dstui.jobs.watch.follow import Follower

HOSTS = {"h1": HostStatus("reached", 1000.0), "h2": HostStatus("unreachable", 1012.5, "no answer for 8 s", 3)}


def test_hosts_of_a_status_survive_a_round_trip(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.prepare(1)
    folder.write_status(JobStatus("running", "tag", ranks={0: RankStatus("h1"), 1: RankStatus("h2")}, hosts=HOSTS))
    found = folder.read_status()
    assert found and found.hosts == HOSTS
    assert found.as_json()["hosts"]["h2"] == {
        "state": "unreachable",
        "since": "1970-01-01T00:16:52.500+00:00",
        "problem": "no answer for 8 s",
        "exit_code": 3,
    }


def test_local_job_names_no_hosts() -> None:
    assert initial("tag", {0: "here"}, None).hosts == {}
    assert "hosts" not in initial("tag", {0: "here"}, None).as_json()


@pytest.mark.parametrize("hosts", [[], {"h1": None}, {"h1": {"state": "odd"}}, {"h1": {"exit_code": "3"}}, {"h\0": {}}])
def test_status_with_invalid_hosts_is_rejected(hosts: object) -> None:
    assert JobStatus.from_json({"state": "running", "hosts": hosts}) is None


def test_changes_of_a_host_are_events(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.prepare(1)
    folder.write_status(JobStatus("succeeded", "tag", exit_code=0, ranks={0: RankStatus("h1", 1, "ended", 0)}))
    folder.append_event(1.0, "host", host="h1", state="unreachable", text="h1 is unreachable:\x1b[2J no answer for 8 s")
    follower = Follower(folder)
    (change,) = (event for event in follower.poll() if isinstance(event, HostChange))
    follower.close()
    assert "\x1b" not in change.text
    assert change.as_json() == {"event": "host", "host": "h1", "state": "unreachable", "text": change.text}
