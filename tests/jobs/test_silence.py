"""Silent ranks: an event of the job, and evidence of its diagnosis, both during a hang and after a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dstui.diagnosis import diagnose_job
from dstui.jobs.control.stop import stop
from dstui.jobs.store.events import Notice
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.follow import Follower
from tests.jobs.lab import Lab, final_status
from tests.jobs.made import dstui, make_job
from tests.waiting import wait_for

pytestmark = pytest.mark.launcher


def events_named(folder: JobFolder, name: str) -> list[dict[str, Any]]:
    return [event for _, event in folder.numbered_events() if event.get("event") == name]


def test_hang_and_straggler_are_events_that_the_diagnosis_uses(tmp_path: Path) -> None:
    words = ("all:say step 11 loss 0.5", "0:say step 12 loss 0.4", "all:hang")
    folder = Lab(tmp_path).start(*words, run="silence: 1")
    event = wait_for(lambda: events_named(folder, "silence"))[0]
    assert (event["step"], event["missing"], event["absent"]) == (12, [1], [])
    stacks = wait_for(lambda: events_named(folder, "stacks"))[0]  # written by the hook of each rank, unasked
    assert len(stacks["lines"]) == 1 and stacks["lines"][0].startswith("ranks 0-1: in <lambda> (behave.py:")
    follower = Follower(folder)
    notices = [event for event in follower.poll() if isinstance(event, Notice) and event.code == "hang"]
    follower.close()
    assert [notice.text for notice in notices] == stacks["lines"] == list(follower.notices.places)
    hangs = diagnose_job(folder)
    assert "no rank has written anything for" in hangs.title and "ranks 0-1: in <lambda> (behave.py:" in hangs.title
    assert hangs.cause is None and hangs.could_be == ("HANG",) and hangs.evidence[-1].file == str(folder.events_file)
    stop(folder)
    assert final_status(folder)["state"] == "stopped"
    code, said, _ = dstui("diagnose", folder.path, cwd=tmp_path)
    assert code == 0 and "somebody" in said.lower() and "Before that no rank had written anything" in " ".join(said.split())
    assert len(events_named(folder, "silence")) == len(events_named(folder, "stacks")) == 1


TIMEOUT = (
    "Traceback (most recent call last):\nRuntimeError: [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete\n"
)
LATE = ["rank 1 has not reached the all_reduce that rank 0 waits in.", "rank 1: in load (data.py:7)"]


@pytest.mark.parametrize(("over", "told"), [(None, True), (55.0, True), (2.0, False)])
def test_timeout_reports_the_silence_before_it_and_the_late_rank(tmp_path: Path, over: float | None, told: bool) -> None:
    folder = make_job(tmp_path / "job", logs={0: TIMEOUT, 1: ""}, state="failed", exit_code=1)
    for rank in (0, 1):
        folder.record(rank).write_text(json.dumps({"rank": rank, "host": "h1", "pid": 1, "ended": 1767323105.0, "exit_code": 1}))
    began = 1767323105.0 - 3600
    folder.append_event(began + 300, "silence", attempt=1, since=began, missing=[], absent=[])
    folder.append_event(began + 301, "stacks", attempt=1, late=[1], at="load (data.py:7)", lines=LATE)
    if over is not None:
        folder.append_event(began + over * 60 + 299, "silence_over", attempt=1, seconds=over)
    found = diagnose_job(folder)
    if told:
        assert (found.cause, found.title) == ("HANG", "A rank was stuck: load (data.py:7)") and "HANG-DESYNC" in found.could_be
        assert found.first_failing_rank == 1 and "all_reduce that rank 0 waits in; rank 1: in load (data.py:7)" in found.notes[0]
        assert found.notes[0].startswith("Before that no rank had written anything for 60 min" if over is None else "Before that")
    else:
        assert found.cause == "HANG-DESYNC" and not any("written" in note for note in found.notes)


def test_ranks_that_continue_were_no_hang(tmp_path: Path) -> None:
    folder = Lab(tmp_path).start(f"all:wait {tmp_path / 'go'}", "all:say step 1 loss 0.5", "all:hang", run="silence: 1")
    wait_for(lambda: events_named(folder, "silence"))
    (tmp_path / "go").touch()
    over = wait_for(lambda: events_named(folder, "silence_over"))
    assert over[0]["seconds"] > 0
    wait_for(lambda: len(events_named(folder, "silence")) == 2)  # reported again, for the new silence
    stop(folder)


def test_stop_of_a_hanging_run_advises_to_look_at_the_late_rank(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 1 loss 0.5\n", 1: ""}, state="stopped", exit_code=143)
    folder.append_event(300, "silence", attempt=1, since=1, missing=[1], absent=[])
    folder.append_event(301, "stacks", attempt=1, late=[1], at="load (data.py:7)", lines=LATE)
    found = diagnose_job(folder)
    assert found.kind == "stop"
    assert [fix.text.partition(":")[0] for fix in found.fixes] == ["See why rank 1 stayed in load (data.py"]
    assert "rank 0 waits in; rank 1: in load" in found.evidence[-1].text
