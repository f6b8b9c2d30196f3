"""`dstui diagnose` for own runs: the newest, one by name, all since a moment, and failures that repeat."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from dstui.diagnosis import diagnose, report
from tests.diagnosis.crash_texts import diagnose_lines, traceback
from tests.jobs.made import dstui, make_job

HOSTS = {0: "worker-1", 1: "worker-3"}


def failed(folder: Path, first: int, error: str, hours_ago: float, *, lost: bool = False) -> None:
    """Make a run on two hosts in which one rank raised an error before the other ended."""
    other = 1 - first
    job = make_job(folder, logs={first: "\n".join(traceback(None, error)) + "\n", other: "step 1 loss 2.0\n"})
    began = datetime.now(timezone.utc) - timedelta(hours=hours_ago)
    for rank in (first, other):
        ended = began.timestamp() + (5 if rank == first else 9)
        job.record(rank).write_text(json.dumps({"rank": rank, "host": HOSTS[rank], "pid": 1, "ended": ended, "exit_code": 1}))
    status = json.loads(job.status_file.read_text())
    ranks = {str(rank): {"host": HOSTS[rank], "pid": 1, "state": "ended", "exit_code": 1} for rank in (0, 1)}
    moments = {"started": began.isoformat(), "ended": (began + timedelta(seconds=9)).isoformat()}
    job.status_file.write_text(json.dumps({**status, "state": "lost" if lost else "failed", "exit_code": 1, "ranks": ranks, **moments}))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder in which four of five runs failed first on the same host."""
    runs = tmp_path / "dstui_runs"
    for number, first in enumerate((1, 1, 0, 1, 1)):
        failed(runs / f"tiny-2026010{number + 1}-030405", first, f"KeyError: 'labels{number}'", hours_ago=50 - 10 * number)
    for folder in runs.iterdir():
        (folder / "launch.json").write_text(json.dumps({"base": str(tmp_path)}))
    return tmp_path


def test_newest_run_here_is_the_default(place: Path) -> None:
    code, out, _ = dstui("diagnose", cwd=place)
    assert code == 0
    assert "labels4" in out
    assert "worker-3 was first in 4 of the last 5 failures here." in " ".join(out.split())


def test_run_is_found_by_name_and_anything_else_is_a_missing_file(place: Path) -> None:
    code, out, _ = dstui("diagnose", "tiny-20260103", cwd=place)
    assert (code, "labels2" in out) == (0, True)
    code, _, err = dstui("diagnose", "nothing", cwd=place)
    assert (code, "nothing: no such file or folder. There is no run called nothing." in err) == (2, True)
    code, _, err = dstui("diagnose", "tiny-2026", cwd=place)
    assert (code, "may be tiny-20260101-030405" in err) == (2, True), "several runs have this prefix"


def test_missing_runs_give_a_message(tmp_path: Path) -> None:
    code, _, err = dstui("diagnose", cwd=tmp_path)
    assert code == 2
    assert "No runs yet" in err


def test_runs_since_a_moment_are_listed_one_per_line(place: Path) -> None:
    code, out, _ = dstui("diagnose", "--since", "35h", cwd=place)
    assert code == 0
    assert [f"labels{number}" in out for number in range(5)] == [False, False, True, True, True]
    code, out, _ = dstui("diagnose", "--since", "2020-01-01", "--json", cwd=place)
    found = json.loads(out)
    assert (code, len(found["runs"])) == (0, 5)
    assert found["repeated"] == "worker-3 was first in 4 of the last 5 failures here."
    assert found["runs"][0]["diagnosis"]["cause"] == "USER-PY"
    assert dstui("diagnose", "--since", "1s", cwd=place)[0] == 1
    assert "not a time" in dstui("diagnose", "--since", "soon", cwd=place)[2]
    assert "leave out the paths" in dstui("diagnose", "--since", "1h", "x.log", cwd=place)[2]


def test_markdown_can_be_pasted_and_no_log_line_ends_its_block(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "a_log", traceback(None, "ValueError: ``` <b>odd</b> *words*"))
    text = report(found, markdown=True)
    assert text.startswith("**")
    assert "````" in text
    assert "<b>" not in text.split("````")[0]
    code, out, _ = dstui("diagnose", "a_log", "--format", "markdown", cwd=tmp_path)
    assert (code, "````" in out) == (0, True)
    assert diagnose([tmp_path / "a_log"]).as_json() == found.as_json()
