"""All logs of a job in one order: each byte once, from either end, as the index has it, and as well as can be without one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs.time_parsing import format_clock
from dstui.logs.timeline import Slice, Timeline
from tests.logs.made_logs import BEGAN, MadeJob


def told(timeline: Timeline, slices: Iterable[Slice]) -> list[tuple[float | None, int | None, str]]:
    """Every line with its time (None where it is not known) and its rank."""
    return [
        (piece.time - BEGAN if piece.known else None, rank, line.decode())
        for piece in slices
        for _, rank, lines in timeline.read(piece.parts)
        for line in lines
    ]


SAID = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()), max_size=25)


@given(said=SAID, unfinished=st.booleans(), forgotten=st.integers(0, 24))
def test_every_line_is_told_once_in_the_order_of_its_rank_from_either_end(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, int, bool]], unfinished: bool, forgotten: int
) -> None:
    job = MadeJob(tmp_path_factory.mktemp("job"), 3)
    wrote: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for second, (rank, count, seen) in enumerate(said):
        lines = [f"line {len(wrote[rank]) + n}" for n in range(count)]
        wrote[rank] += lines
        job.say(rank, *lines)
        if seen and second >= forgotten:
            job.update(second)
    if unfinished:
        wrote[1].append("and then")
        job.say(1, "and then", end="")
    job.status("failed")
    timeline = Timeline(job.folder)
    forth, back = list(timeline.forth()), list(timeline.back())
    for slices in (forth, back[::-1]):
        lines = told(timeline, slices)
        assert {rank: [line for _, r, line in lines if r == rank] for rank in wrote} == wrote
    timeline.close()


def test_lines_have_the_time_of_the_look_that_saw_them_and_that_order(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 2)
    job.say(1, "first")
    job.update(1)
    job.say(0, "second")
    job.say(1, "second")
    job.say(1, "begun", end="")
    job.update(2)
    job.say(1, " and ended")
    job.update(3)
    expected = [(1, 1, "first"), (2, 0, "second"), (2, 1, "second"), (3, 1, "begun and ended")]
    timeline = Timeline(job.folder)
    assert told(timeline, timeline.forth()) == expected
    assert told(timeline, list(timeline.back())[::-1]) == expected


def test_logs_without_an_index_are_told_side_by_side_and_have_no_times(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 2)
    for rank in (0, 1):
        job.say(rank, *(f"step {n} {'.' * 80}" for n in range(1000)))
    timeline = Timeline(job.folder)
    lines = told(timeline, timeline.forth())
    assert {time for time, _, _ in lines} == {None}
    steps = [(int(line.split()[1]), rank) for _, rank, line in lines]
    assert max(abs(n - place // 2) for place, (n, _) in enumerate(steps)) < 100


def test_what_comes_is_told_once_and_a_line_that_is_never_finished_at_the_end(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 2)
    job.say(0, "before")
    timeline = Timeline(job.folder)
    job.say(0, "a", "b")
    job.say(1, "c")
    job.say(1, "d", end="")
    timeline.find()
    assert told(timeline, timeline.poll(BEGAN + 5)) == [(5, 0, "a"), (5, 0, "b"), (5, 1, "c")]
    assert told(timeline, timeline.poll(BEGAN + 6)) == []
    assert told(timeline, timeline.finish(BEGAN + 7)) == [(7, 1, "d")]


def test_every_attempt_is_told_and_one_can_be_chosen(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "first attempt")
    job.update(1)
    job.folder.prepare(2)
    job.say(0, "second attempt", attempt=2)
    job.update(2, attempt=2)
    for attempt, expected in ((None, ["first attempt", "second attempt"]), (2, ["second attempt"])):
        timeline = Timeline(job.folder, attempt=attempt)
        assert [line for _, _, line in told(timeline, timeline.forth())] == expected


def test_what_dstui_says_of_the_job_has_its_place_among_the_lines(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "before")
    job.update(1)
    job.folder.append_event(BEGAN + 2, "notice", text="rank 0 waits")
    job.folder.append_event(BEGAN + 2.5, "facts", anything=1)
    job.say(0, "after")
    job.update(3)
    timeline = Timeline(job.folder)
    assert told(timeline, timeline.forth()) == [(1, 0, "before"), (2, None, "rank 0 waits"), (3, 0, "after")]


def test_a_rank_ends_after_its_last_line_though_events_are_written_in_milliseconds(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "done")
    job.update(1.0003)
    job.folder.append_event(round(BEGAN + 1.0003, 3), "rank", rank=0, host="h1", state="ended", exit_code=0)
    timeline = Timeline(job.folder)
    assert [line for _, _, line in told(timeline, timeline.forth())] == ["done", "rank 0 on h1: ended, exit status 0"]
    timeline = Timeline(job.folder)
    assert [line for _, _, line in told(timeline, timeline.back())] == ["rank 0 on h1: ended, exit status 0", "done"]


def test_a_log_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "old", "old")
    timeline = Timeline(job.folder)
    job.folder.log(0).write_text("new\n")
    list(timeline.poll(BEGAN))
    assert timeline.replaced


@given(rubbish=st.binary(max_size=300))
def test_rubbish_in_the_index_loses_no_line(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    job = MadeJob(tmp_path_factory.mktemp("job"), 2)
    for rank in (0, 1):
        job.say(rank, "first", "second")
        job.update(rank)
    index = job.folder.arrivals_file
    index.write_bytes(index.read_bytes()[:40] + rubbish)
    timeline = Timeline(job.folder)
    for slices in (timeline.forth(), list(timeline.back())[::-1]):
        lines = [(rank, line, format_clock(time or 0.0)) for time, rank, line in told(timeline, slices)]
        assert [line for rank, line, _ in lines if rank == 0] == ["first", "second"]
        assert [line for rank, line, _ in lines if rank == 1] == ["first", "second"]
    timeline.close()
