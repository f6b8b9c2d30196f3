"""Folding: every line of every rank once and in order, and one row for lines that several ranks printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs.dedup import Batch, DedupRows

Lines = list[list[list[bytes]]]
LINE = st.sampled_from([b"a", b"b", b"c", b"", b"step 1", b"step 2"])
LOOKS = st.lists(st.lists(st.lists(LINE, max_size=6), min_size=3, max_size=3), max_size=6)


def rows_of(looks: Lines, *, dedup: bool = True, every: float = 0.1) -> DedupRows:
    rows = DedupRows(dedup=dedup)
    for number, look in enumerate(looks):
        rows.add(number * every, [Batch(rank, rank, lines) for rank, lines in enumerate(look) if lines])
    return rows


def lines_of(rows: DedupRows, rank: int) -> list[bytes]:
    return [raw for raw, said in zip(rows.raw, rows.log_mask, strict=True) if said >> rank & 1]


@given(looks=LOOKS, dedup=st.booleans())
def test_every_line_of_every_rank_appears_once_in_order(looks: Lines, dedup: bool) -> None:
    rows = rows_of(looks, dedup=dedup)
    for rank in range(3):
        assert lines_of(rows, rank) == [line for look in looks for line in look[rank]]
    assert sum(said.bit_count() for said in rows.log_mask) == rows.lines == sum(len(lines) for look in looks for lines in look)


def test_lines_of_all_ranks_are_one_row_despite_others_between() -> None:
    steps = [b"step %d" % n for n in range(20)]
    odd = [*steps[:5], b"[W] NCCL watchdog", *steps[5:]]
    rows = rows_of([[steps, odd, steps]])
    assert rows.raw == odd
    assert [said.bit_count() for said in rows.log_mask] == [3] * 5 + [1] + [3] * 15


def test_simultaneous_lines_are_interleaved() -> None:
    rows = rows_of([[[b"step %d loss %d" % (n, rank) for n in range(4)] for rank in (0, 1)]])
    assert rows.raw == [b"step %d loss %d" % (n, rank) for n in range(4) for rank in (0, 1)]


def test_late_rank_joins_a_recent_row_but_not_an_old_one() -> None:
    rows = rows_of([[[b"saved"], [], []], [[], [b"saved"], []], [[], [], [b"saved"]]], every=4.0)
    assert [said.bit_count() for said in rows.log_mask] == [2, 1]


@pytest.mark.parametrize(
    "line",
    [
        b"[2026-01-01 10:00:0%d,123] [INFO] [logging.py:128:log_dist] [Rank %d] step=10",
        b"[2026-01-01 10:00:0%d,123] rank: %d is ready",
        b"10:00:0%d rank %d loaded",
        b"I am rank%d",
        b"%d: loaded",
        b"[%d] loaded",
        b"model on cuda:%d",
    ],
)
def test_lines_that_differ_only_in_rank_and_time_are_equal(line: bytes) -> None:
    said = [line % ((rank,) * line.count(b"%d")) for rank in range(3)]
    rows = rows_of([[[each] for each in said]])
    assert rows.raw == [said[0]]


def test_different_loss_is_a_separate_row() -> None:
    rows = rows_of([[[b"step 7 loss 1.%d" % rank] for rank in range(3)]])
    assert len(rows) == 3


def test_progress_bars_are_equal_if_they_show_the_same() -> None:
    rows = rows_of([[[b" 10%|#\r 50%|###\r100%|######\r"], [b" 20%|##\r100%|######"], []]])
    assert len(rows) == 1
