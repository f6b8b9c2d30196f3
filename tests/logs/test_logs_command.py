"""`dstui logs`: lines of all ranks and attempts in order of arrival, or a selection."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.jobs.made import dstui
from tests.logs.made_logs import BEGAN, MadeJob

TRACE = ["Traceback (most recent call last):", '  File "train.py", line 7', "ValueError: no"]


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """Return a job of two ranks on two hosts with two attempts; the last line of the first rank arrived last."""
    made = MadeJob(tmp_path / "job", 2, hosts=2, state="failed")
    made.say(1, "step 1", "\x1b[33mWARNING\x1b[0m careful", *TRACE)
    made.update(1)
    made.say(0, "step 1 \x1b[31mred\x1b[0m")
    made.update(40)
    made.folder.prepare(2)
    made.say(0, "again", attempt=2)
    made.update(50, attempt=2)
    made.say(0, "never finished", end="", attempt=2)
    made.update(60, attempt=2)
    made.status("failed", attempt=2)
    return made


def lines(job: MadeJob, *options: object) -> list[str]:
    code, out, err = dstui("logs", "job", *options, cwd=job.folder.path.parent)
    assert (code, err) == (0, "")
    return out.splitlines()


def test_lines_of_every_attempt_are_printed_in_order_of_arrival(job: MadeJob) -> None:
    assert lines(job) == [f"[1] {line}" for line in ("step 1", "WARNING careful", *TRACE)] + [
        "[0] step 1 red",
        "[0] again",
        "[0] never finished",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--rank", 0), ["step 1 red", "again", "never finished"]),
        (("--rank", 0, "--rank", 1, "--grep", "^step"), ["[1] step 1", "[0] step 1 red"]),
        (("--attempt", 2), ["[0] again", "[0] never finished"]),
        (("--host", "worker-0", "--attempt", 1), ["[0] step 1 red"]),
        (("--level", "warning"), ["[1] WARNING careful", *(f"[1] {line}" for line in TRACE)]),
        (("--level", "error"), [f"[1] {line}" for line in TRACE]),
        (("--level", "warn"), ["[1] WARNING careful", *(f"[1] {line}" for line in TRACE)]),
        (("--level", "ERR"), [f"[1] {line}" for line in TRACE]),
        (("--since", "15s"), ["[0] again", "[0] never finished"]),
        (("--since", "10m", "--rank", 0, "--attempt", 1), ["step 1 red"]),
    ],
)
def test_only_selected_lines_are_printed(job: MadeJob, options: tuple[object, ...], expected: list[str]) -> None:
    assert lines(job, *options) == expected


def test_times_are_local_and_omitted_if_unknown(job: MadeJob) -> None:
    seen = time.strftime("%H:%M:%S", time.localtime(BEGAN + 50))
    assert lines(job, "--attempt", 2, "--time")[0] == f"{seen} [0] again"
    job.folder.arrivals_file.unlink()
    assert lines(job, "--attempt", 2, "--time")[0] == f"{'':8} [0] again"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "worker-9"), "worker-0, worker-1"),
        (("--attempt", 3), "its last is 2"),
        (("--rank", 0, "--rank", 2), "--rank 2: job has ranks 0 to 1"),
        (("--since", "yesterday"), "not a time"),
        (("--grep", "("), "--grep ("),
        (("--metrics", "csv", "--time"), "combined with --rank"),
    ],
)
def test_invalid_options_give_messages(job: MadeJob, options: tuple[object, ...], said: str) -> None:
    code, out, err = dstui("logs", "job", *options, cwd=job.folder.path.parent)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
