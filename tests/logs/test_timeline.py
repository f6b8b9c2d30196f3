"""All logs of a job in one order: each byte once, from either end, by the index if there is one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs.time_parsing import format_clock
from dstui.logs.timeline import Slice, Timeline
from tests.logs.made_logs import BEGAN, MadeJob


def lines_of(timeline: Timeline, slices: Iterable[Slice]) -> list[tuple[float | None, int | None, str]]:
    """Return every line with its time (None if unknown) and its rank."""
    return [
        (piece.time - BEGAN if piece.known else None, rank, line.decode())
        for piece in slices
        for _, rank, lines in timeline.read(piece.parts)
        for line in lines
    ]


SAID = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()), max_size=25)


@given(said=SAID, unfinished=st.booleans(), forgotten=st.integers(0, 24))
def test_every_line_appears_once_in_its_ranks_order_from_either_end(
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
        lines = lines_of(timeline, slices)
        assert {rank: [line for _, r, line in lines if r == rank] for rank in wrote} == wrote
    timeline.close()


def test_lines_have_the_time_and_order_of_their_arrival(tmp_path: Path) -> None:
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
    assert lines_of(timeline, timeline.forth()) == expected
    assert lines_of(timeline, list(timeline.back())[::-1]) == expected


def test_logs_without_an_index_are_interleaved_without_times(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 2)
    for rank in (0, 1):
        job.say(rank, *(f"step {n} {'.' * 80}" for n in range(1000)))
    timeline = Timeline(job.folder)
    lines = lines_of(timeline, timeline.forth())
    assert {time for time, _, _ in lines} == {None}
    steps = [(int(line.split()[1]), rank) for _, rank, line in lines]
    assert max(abs(n - place // 2) for place, (n, _) in enumerate(steps)) < 100


def test_new_lines_appear_once_and_an_unfinished_one_at_the_end(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 2)
    job.say(0, "before")
    timeline = Timeline(job.folder)
    job.say(0, "a", "b")
    job.say(1, "c")
    job.say(1, "d", end="")
    timeline.find()
    assert lines_of(timeline, timeline.poll(BEGAN + 5)) == [(5, 0, "a"), (5, 0, "b"), (5, 1, "c")]
    assert lines_of(timeline, timeline.poll(BEGAN + 6)) == []
    assert lines_of(timeline, timeline.finish(BEGAN + 7)) == [(7, 1, "d")]


def test_every_attempt_appears_and_one_can_be_selected(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "first attempt")
    job.update(1)
    job.folder.prepare(2)
    job.say(0, "second attempt", attempt=2)
    job.update(2, attempt=2)
    for attempt, expected in ((None, ["first attempt", "second attempt"]), (2, ["second attempt"])):
        timeline = Timeline(job.folder, attempt=attempt)
        assert [line for _, _, line in lines_of(timeline, timeline.forth())] == expected


def test_events_of_the_job_have_their_place_among_the_lines(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "before")
    job.update(1)
    job.folder.append_event(BEGAN + 2, "notice", text="rank 0 waits")
    job.folder.append_event(BEGAN + 2.5, "facts", anything=1)
    job.say(0, "after")
    job.update(3)
    timeline = Timeline(job.folder)
    assert lines_of(timeline, timeline.forth()) == [(1, 0, "before"), (2, None, "rank 0 waits"), (3, 0, "after")]


def test_rank_ends_after_its_last_line_despite_millisecond_events(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "done")
    job.update(1.0003)
    job.folder.append_event(round(BEGAN + 1.0003, 3), "rank", rank=0, host="h1", state="ended", exit_code=0)
    timeline = Timeline(job.folder)
    assert [line for _, _, line in lines_of(timeline, timeline.forth())] == ["done", "rank 0 on h1: ended, exit status 0"]
    timeline = Timeline(job.folder)
    assert [line for _, _, line in lines_of(timeline, timeline.back())] == ["rank 0 on h1: ended, exit status 0", "done"]


def test_replaced_log_is_detected(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "old", "old")
    timeline = Timeline(job.folder)
    job.folder.log(0).write_text("new\n")
    list(timeline.poll(BEGAN))
    assert timeline.replaced


@given(rubbish=st.binary(max_size=300))
def test_garbage_in_the_index_loses_no_line(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    job = MadeJob(tmp_path_factory.mktemp("job"), 2)
    for rank in (0, 1):
        job.say(rank, "first", "second")
        job.update(rank)
    index = job.folder.arrivals_file
    index.write_bytes(index.read_bytes()[:40] + rubbish)
    timeline = Timeline(job.folder)
    for slices in (timeline.forth(), list(timeline.back())[::-1]):
        lines = [(rank, line, format_clock(time or 0.0)) for time, rank, line in lines_of(timeline, slices)]
        assert [line for rank, line, _ in lines if rank == 0] == ["first", "second"]
        assert [line for rank, line, _ in lines if rank == 1] == ["first", "second"]
    timeline.close()
