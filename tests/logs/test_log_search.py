"""The log as rows, and its search: the result is that of checking every line, however the file is split into blocks."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs import log_rows
from dstui.logs.levels import ERROR
from dstui.logs.line_query import parse_line_query
from dstui.logs.log_blocks import BlockRows
from dstui.logs.log_rows import LogRows
from dstui.logs.log_search import PROBLEM, Search
from dstui.logs.timeline import Timeline
from tests.logs.made_logs import MadeJob

LINES = [f"step {number} loss {'nan' if number % 97 == 0 else 1.5}" for number in range(20_000)] + ["Error: École \x1b[31mred\x1b[0m"]


def settle(lines: LogRows) -> LogRows:
    """Read and count everything that exists."""
    while lines.poll() or not lines.complete:
        lines.wanted = 4
    return lines


def rows(lines: LogRows) -> list[tuple[int | None, str, int]]:
    return [(line.rank, line.text, line.repeats) for line in map(lines.line, range(lines.first, lines.end))]


SAID = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["step 1", "step 2", "saved", "x" * 200])), max_size=60)


@given(said=SAID, opened=st.integers(0, 59), block=st.sampled_from([1, 300, 1 << 18]), dedup=st.booleans())
def test_rows_have_every_line_of_every_rank_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, str]], opened: int, block: int, dedup: bool
) -> None:
    job, lines = MadeJob(tmp_path_factory.mktemp("job"), 3), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_rows, "BLOCK", block)
        patch.setattr(log_rows, "WORKED", block)
        patch.setattr(log_rows, "KEPT", 2 * block)
        for number, (rank, text) in enumerate(said):
            if number == opened:
                lines = LogRows(Timeline(job.folder), dedup=dedup)
            job.say(rank, text)
            job.update(number)
            if lines is not None:
                lines.timeline.find()
                lines.poll()
        lines = settle(lines or LogRows(Timeline(job.folder), dedup=dedup))
        told = [(lines.line(number).text, lines.ranks_of(number)) for number in range(lines.first, lines.end)]
        lines.timeline.close()
    for rank in range(3):
        assert [text for text, who in told if rank in who] == [text for r, text in said if r == rank]
    assert sum(len(who) for _, who in told) == lines.lines == len(said)


@pytest.mark.parametrize(
    ("line", "speaks"),
    [
        ("ValueError: x must be positive", True),
        ("torch.OutOfMemoryError: CUDA out of memory", True),
        ("step 3 loss nan", True),
        ("Killed", True),
        ("no errors so far", False),
        ("finance data loaded", False),
    ],
)
def test_lines_about_errors_are_recognised(tmp_path: Path, line: str, speaks: bool) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "all fine")
    job.say(0, line)
    job.update(1)
    search = Search(PROBLEM, settle(LogRows(Timeline(job.folder), dedup=False)), regex=True)
    search.advance(10.0)
    assert bool(search.found) == speaks


def test_end_is_read_first_and_the_beginning_on_request(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, *(f"line {n} {'.' * 100}" for n in range(100_000)))
    lines = LogRows(Timeline(job.folder))
    lines.poll(0.0)
    assert lines.line(lines.end - 1).text.startswith("line 99999 ")
    assert not lines.complete
    before = lines.line(-1000).text
    settle(lines)
    assert lines.line(-1000).text == before
    assert lines.line(lines.first).text.startswith("line 0 ")
    assert lines.end - lines.first == 100_000


def test_view_that_was_closed_is_freed_at_once(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, *(f"line {n} {'.' * 100}" for n in range(100_000)))
    gc.disable()  # its cached rows are megabytes, which would wait for the next collection
    try:
        lines = LogRows(Timeline(job.folder))
        lines.poll()
        assert not lines.complete
        closed = weakref.ref(lines)
        del lines
        assert closed() is None
    finally:
        gc.enable()


def test_oldest_lines_are_dropped_and_reported_if_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rows, "MEMORY", 2000)
    job = MadeJob(tmp_path, 1)
    job.say(0, *(f"line {n} {'.' * 100}" for n in range(100_000)))
    lines = settle(LogRows(Timeline(job.folder)))
    assert lines.left_out
    assert lines.line(lines.end - 1).text.startswith("line 99999 ")


def test_few_of_the_blocks_in_which_nothing_passes_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rows, "WORKED", 300)
    monkeypatch.setattr(log_rows, "KEPT_MATCHES", 100)
    gc.collect()
    others = {id(each) for each in gc.get_objects() if isinstance(each, BlockRows)}
    job = MadeJob(tmp_path, 1)
    job.say(0, *["step 1"] * 5000)
    lines = settle(LogRows(Timeline(job.folder), only=parse_line_query("!step", 0.0).texts))
    assert (lines.end - lines.first, lines.hidden) == (0, 5000)
    gc.collect()
    assert sum(isinstance(each, BlockRows) and id(each) not in others for each in gc.get_objects()) < 20 < len(lines.blocks)


def test_only_errors_and_complete_tracebacks_are_shown(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 2)
    trace = ["Traceback (most recent call last):", '  File "train.py", line 1', "ValueError: no"]
    job.say(0, "step 1", "[WARNING] careful", *trace, "step 2")
    job.say(1, "step 1", "step 2")
    assert [text for _, text, _ in rows(settle(LogRows(Timeline(job.folder), least=ERROR)))] == trace


@pytest.mark.parametrize(
    ("text", "regex"),
    [
        ("step 399", False),
        ("loss NAN", False),
        ("error", False),
        ("École", False),
        ("école", False),
        (r"^step 3\d+7 .*nan$", True),
        ("gone", False),
    ],
)
@pytest.mark.parametrize("dedup", [True, False])
def test_search_equals_checking_every_row(tmp_path: Path, text: str, regex: bool, dedup: bool) -> None:
    job = MadeJob(tmp_path, 2)
    job.say(0, *LINES)
    job.say(1, *LINES[:12_000])
    search = Search(text, LogRows(Timeline(job.folder), dedup=dedup), regex=regex)
    while not search.complete:
        search.lines.poll()
        search.advance()
    expected = [n for n in range(search.lines.first, search.lines.end) if search.expression.search(search.lines.line(n).text)]
    assert list(search.found) == expected
    if expected:
        assert search.neighbour(expected[-1], 1) == expected[0]
        assert search.place(expected[0]) == 1


def test_search_finds_later_lines(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "step 1")
    lines = LogRows(Timeline(job.folder))
    lines.poll()
    search = Search("Step", lines)
    search.advance()
    assert not search.found
    job.say(0, "Step 2")
    lines.poll()
    assert search.advance()
    assert [lines.line(n).text for n in search.found] == ["Step 2"]


def test_capital_letter_makes_a_search_case_sensitive(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, 1)
    job.say(0, "Error here", "error there")
    for pattern, count in (("error", 2), ("Error", 1)):
        search = Search(pattern, settle(LogRows(Timeline(job.folder))))
        search.advance()
        assert len(search.found) == count


def test_text_with_a_colour_change_inside_is_found(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "job", 1)
    job.say(0, "step 7 l\x1b[1moss \x1b[0m1.5", "step 8 loss 1.5")
    job.update(1)
    lines = settle(LogRows(Timeline(job.folder)))
    search = Search("loss 1.5", lines)
    while not search.complete:
        search.advance()
    assert [lines.line(number).text for number in search.found] == ["step 7 loss 1.5", "step 8 loss 1.5"]
    lines.timeline.close()
