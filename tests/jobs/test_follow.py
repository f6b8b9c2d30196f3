"""Follow a job by its folder alone, including folders that are half-written, growing or invalid."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import pytest

from dstui.jobs.store.events import Event, Exited, Line, Metric, Notice, RankState, Started
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.status import initial
from dstui.jobs.watch.follow import BAR_EVERY, Follower
from dstui.jobs.watch.summary import summary
from tests.job_json import status_json, write_status_json
from tests.owned import add_to_index


@pytest.fixture(autouse=True)
def unlimited_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one poll read everything, even if the machine is too busy to do so in a poll's usual time."""
    monkeypatch.setattr("dstui.jobs.watch.follow.SPELL", 60.0)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Return the folder of a running job with two ranks, whose lock is held."""
    folder = add_to_index(JobFolder(tmp_path), "tag")
    folder.prepare(1)
    assert folder.lock() is not None
    write_status_json(folder, {**initial("tag", {0: "here", 1: "here"}, None).as_json(), "started": "2026-01-01T00:00:00.000+00:00"})
    return folder


def set_rank(folder: JobFolder, number: int, state: str, code: int | None = None) -> None:
    status = status_json(folder)
    status["ranks"][str(number)] |= {"state": state, "exit_code": code}
    write_status_json(folder, {**status, "state": "running"})


def end(folder: JobFolder, code: int) -> None:
    status = status_json(folder)
    write_status_json(
        folder, {**status, "state": "failed" if code else "succeeded", "exit_code": code, "ended": "2026-01-01T00:01:30.000+00:00"}
    )


def write(folder: JobFolder, number: int, text: bytes) -> None:
    with folder.log(number).open("ab") as log:
        log.write(text)


def test_lines_of_a_rank_precede_its_end_and_everything_precedes_the_jobs_end(folder: JobFolder) -> None:
    follower = Follower(folder)
    assert [type(event) for event in follower.poll()] == [Started]
    set_rank(folder, 0, "started")
    write(folder, 0, b"step 1 loss 2.5\nunfin")
    assert follower.poll() == [RankState(0, "here", "started", None), Line(0, "step 1 loss 2.5"), Metric(0, 1, "loss", 2.5)]
    write(folder, 0, b"ished\nlast words")
    set_rank(folder, 0, "ended", 3)
    set_rank(folder, 1, "lost", 137)
    end(folder, 3)
    told: list[Event] = []
    while not told or not isinstance(told[-1], Exited):
        told += follower.poll()
    assert told == [
        RankState(1, "here", "started", None),
        Line(0, "unfinished"),
        Line(0, "last words"),
        RankState(0, "here", "ended", 3),
        RankState(1, "here", "lost", 137),
        Exited(3, "failed"),
    ]
    assert follower.poll() == []
    assert (follower.exit_code, follower.state, follower.duration) == (3, "failed", 90.0)


def test_small_budget_loses_no_line(folder: JobFolder) -> None:
    set_rank(folder, 0, "started")
    set_rank(folder, 1, "started")
    for number in (0, 1):
        write(folder, number, b"".join(b"rank %d line %d %s\n" % (number, line, b"x" * (line % 50)) for line in range(3000)))
        set_rank(folder, number, "ended", 0)
    end(folder, 0)
    follower, told = Follower(folder), list[Event]()
    while not told or not isinstance(told[-1], Exited):
        told += follower.poll(budget=1000)
    for number in (0, 1):
        lines = [event.text.split()[3] for event in told if isinstance(event, Line) and event.rank == number]
        assert lines == [str(line) for line in range(3000)]


def test_log_without_lines_gives_the_same_numbers(folder: JobFolder) -> None:
    set_rank(folder, 0, "started")
    for text in (
        b"step 1 LOSS 2.5\n\n",
        b"nothing\nan un",
        b"finished loss: 2.0\n\x1b[1mlr\x1b[0m 0.1",
        b"\n  2%|# | 2/100 [00:01<00:19, 5.0it/s]",
    ):
        write(folder, 0, text)
    set_rank(folder, 0, "ended", 0)
    end(folder, 0)
    told: dict[bool, list[Event]] = {}
    for lines in (True, False):
        follower = Follower(folder, lines=lines)
        told[lines] = follower.poll() + follower.poll(budget=20)
        assert follower.ranks[0].step == 2
    assert [event for event in told[True] if not isinstance(event, Line)] == told[False]
    assert len([event for event in told[False] if isinstance(event, Metric)]) == 4
    assert [event.text for event in told[True] if isinstance(event, Line)][3:5] == ["an unfinished loss: 2.0", "lr 0.1"]


def test_attach_can_begin_near_the_end(folder: JobFolder) -> None:
    set_rank(folder, 0, "started")
    write(folder, 0, b"".join(b"line %d\n" % line for line in range(10_000)))
    told = Follower(folder, backlog=50).poll()
    assert [event.text for event in told if isinstance(event, Line)] == [f"line {n}" for n in range(9996, 10_000)]


def test_progress_bar_counts_as_activity_and_is_reported_at_intervals(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(folder)
    set_rank(folder, 0, "started")
    write(folder, 0, b"\r 10%|# | 1/10")
    assert Line(0, " 10%|# | 1/10") in follower.poll()
    write(folder, 0, b"\r 20%|## | 2/10 loss=0.5")
    assert follower.poll() == []
    assert follower.ranks[0].live == " 20%|## | 2/10 loss=0.5"
    later = time.monotonic() + BAR_EVERY
    monkeypatch.setattr("dstui.jobs.watch.follow.time.monotonic", lambda: later)
    assert follower.poll() == [Line(0, " 20%|## | 2/10 loss=0.5"), Metric(0, 1, "loss", 0.5)]


def test_step_of_a_progress_bar_is_known_before_it_is_reported(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(folder)
    set_rank(folder, 0, "started")
    write(folder, 0, b"\r 10%|# | 10/100 [00:10<01:30,  1.00it/s]")
    follower.poll()
    write(folder, 0, b"\r 12%|# | 12/100 [00:12<01:28,  1.00it/s]")
    later = time.monotonic() + BAR_EVERY / 2
    monkeypatch.setattr("dstui.jobs.watch.follow.time.monotonic", lambda: later)
    assert follower.poll() == [] and follower.progress == (12, 100)


def test_job_with_more_ranks_than_file_descriptors_is_followed(folder: JobFolder) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (sum(1 for _ in Path("/proc/self/fd").iterdir()) + 40, hard))
    try:
        status = initial("tag", dict.fromkeys(range(100), "here"), None).as_json()
        for number in range(100):
            status["ranks"][str(number)]["state"] = "started"
            write(folder, number, b"one\n")
        write_status_json(folder, status)
        follower = Follower(folder)
        assert {event.rank for event in follower.poll() if isinstance(event, Line)} == set(range(100))
        follower.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_notice_loses_its_escape_sequences(folder: JobFolder) -> None:
    folder.append_event(1.0, "notice", text="\x1b]0;owned\x07\x1b[2Jdone\u202e")
    assert Notice("done") in Follower(folder).poll()


def test_numbers_of_an_unterminated_last_line_count(folder: JobFolder) -> None:
    follower = Follower(folder)
    set_rank(folder, 0, "started")
    write(folder, 0, b"step 3 loss 0.5")
    set_rank(folder, 0, "ended", 0)
    assert Metric(0, 3, "loss", 0.5) in follower.poll()


def test_values_are_counted_if_lines_have_no_step(folder: JobFolder) -> None:
    follower = Follower(folder)
    set_rank(folder, 1, "started")
    write(folder, 1, b"{'loss': 2.0}\n{'loss': 1.0}\n")
    assert [event.step for event in follower.poll() if isinstance(event, Metric)] == [1, 2]


def test_remaining_time_follows_the_pace_and_ignores_evaluations(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    follower, now = Follower(folder), time.monotonic()
    monkeypatch.setattr("dstui.jobs.watch.follow.time.monotonic", lambda: now)
    set_rank(folder, 1, "started")
    for line in (b"step 10/100 loss 2\n", b"step 20/100 loss 2\n", b" 50%|##  | 5/10 [00:01<00:01]\n", b"step 40/100\n"):
        write(folder, 1, line)
        follower.poll()
        now += 5.0
    assert follower.progress == (40, 100)
    assert follower.remaining == pytest.approx(60 * 15 / 30)
    set_rank(folder, 1, "ended", 0)
    end(folder, 0)
    follower.poll()
    assert follower.remaining is None


def test_age_of_a_rank_is_the_age_of_its_log(folder: JobFolder) -> None:
    set_rank(folder, 0, "started")
    write(folder, 0, b"hello\n")
    os.utime(folder.log(0), (1000.0, 1000.0))
    follower = Follower(folder)
    follower.poll()
    assert follower.ranks[0].last_line_at == 1000.0
    assert follower.ranks[1].last_line_at is None


def test_notices_of_the_supervisor_are_reported(folder: JobFolder) -> None:
    follower = Follower(folder)
    folder.append_event(1.0, "notice", text="rank 0 is compiling")
    folder.append_event(1.0, "notice", text="compiling\x1b[2J", about="/ext\x1b[2J/op", lasts=True)
    folder.append_event(1.0, "rank", rank=0)
    with folder.events_file.open("a") as file:
        file.write("not json\n[1]\n")
    assert [event for event in follower.poll() if not isinstance(event, Started)] == [
        Notice("rank 0 is compiling"),
        Notice("compiling", "/ext/op", lasts=True),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"state": "running"}',
        "\x00\xff",
        '{"ranks": []}',
        '{"state": "running", "tag": "t", "ranks": {"x": 1}}',
        '{"supervisor": "me", "tag": "t"}',
        '{"tag": "t", "attempt": "2"}',
    ],
)
def test_invalid_status_is_ignored(tmp_path: Path, text: str) -> None:
    folder = JobFolder(tmp_path)
    folder.status_file.write_text(text, encoding="latin-1")
    follower = Follower(folder)
    follower.poll()
    assert follower.exit_code is None


def test_vanishing_folder_is_no_error(folder: JobFolder, tmp_path: Path) -> None:
    follower = Follower(folder)
    set_rank(folder, 0, "started")
    write(folder, 0, b"one\n")
    follower.poll()
    folder.path.rename(tmp_path.with_name("elsewhere"))
    assert follower.poll() == []


def test_every_event_has_its_documented_json_shape() -> None:
    shapes = [
        (Started("/job", 1.5), {"version": 1, "t": 1.5, "event": "start", "folder": "/job"}),
        (RankState(1, "here", "ended", 3), {"event": "rank", "rank": 1, "host": "here", "state": "ended", "exit_code": 3}),
        (Line(0, "text"), {"event": "line", "rank": 0, "text": "text"}),
        (Metric(0, 4, "loss", 0.5), {"event": "metric", "rank": 0, "step": 4, "name": "loss", "value": 0.5}),
        (Metric(0, 4, "loss", float("nan")), {"event": "metric", "rank": 0, "step": 4, "name": "loss", "value": None}),
        (Exited(3, "failed"), {"event": "exit", "exit_code": 3, "state": "failed"}),
    ]
    for event, shape in shapes:
        assert event.as_json() == shape
        json.dumps(event.as_json(), allow_nan=False)


def test_summary_has_duration_metrics_and_result(folder: JobFolder) -> None:
    set_rank(folder, 0, "started")
    write(folder, 0, b"step 12 loss 1.25 41.2k tok/s\n")
    set_rank(folder, 0, "ended", 0)
    set_rank(folder, 1, "lost", 137)
    end(folder, 137)
    follower = Follower(folder)
    while follower.poll():
        pass
    text = summary(follower)
    assert text.startswith("failed after 1 min 30 s  last loss 1.25 at step 12  41.2k tokens/s")
    assert "exit status by rank: 1: 137" in text
    assert text.endswith(f"exit status 137\njob folder {folder.path}")
