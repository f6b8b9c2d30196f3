"""Folding by shape: lines of several ranks in a step that differ only in numbers are one row, in which every line can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs.dedup import Batch, DedupRows
from dstui.logs.levels import ranged, shapes_of
from dstui.logs.log_filter import Filter
from dstui.logs.log_rows import LogRows
from dstui.logs.log_search import Search
from tests.tui.test_plot import job

LINE = st.sampled_from([b"loss 1.5", b"loss 2", b"step 1 loss 3", b"step 2 loss 3", b"", b"a 1 b 2", b"ERROR 1", b"ERROR 2"])
LOOKS = st.lists(st.lists(st.lists(LINE, max_size=6), min_size=3, max_size=3), max_size=6)


def opened(path: Path, logs: dict[int, str], **choice: bool) -> LogRows:
    folder = job(path, logs)
    rows = Filter(**choice).open(folder, dict.fromkeys(logs, "here"))
    rows.poll()
    return rows


@given(looks=LOOKS)
def test_every_line_of_every_rank_is_in_one_row_in_order(looks: list[list[list[bytes]]]) -> None:
    rows = DedupRows(dedup=True, shape=True)
    for number, look in enumerate(looks):
        rows.add(number * 0.1, [Batch(rank, rank, lines) for rank, lines in enumerate(look) if lines])
    for rank in range(3):
        assert [said[rank] for said in rows.members if rank in said] == [line for look in looks for line in look[rank]]
    for said, mask in zip(rows.members, rows.log_mask, strict=True):
        assert sum(1 << log for log in said) == mask
        assert len({shapes_of(line) for line in said.values()}) == 1


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([b"step 374/600 loss 1.51", b"step 374/600 loss 1.64"], "step 374/600 loss 1.51–1.64"),
        ([b"lr 1e-05", b"lr 2.5e-4"], "lr 1e-05–2.5e-4"),
        ([b"9 of 10", b"10 of 10"], "9–10 of 10"),
        ([b"\x1b[31mloss 2\x1b[0m", b"\x1b[31mloss 1\x1b[0m"], "loss 1–2"),
        ([b"loss 1.0", b"loss 1.00"], "loss 1.0"),
        ([b"none", b"none"], "none"),
    ],
)
def test_lines_of_one_shape_show_ranges(lines: list[bytes], text: str) -> None:
    assert ranged(tuple(lines)) == text


def test_steps_and_errors_keep_their_numbers() -> None:
    assert shapes_of(b"step 3 loss 1.5\nERROR 7\nepoch: 2 at 9") == b"step 3 loss #\nERROR 7\nepoch: 2 at #"


def test_log_of_four_ranks_is_folded_by_shape_with_stragglers_apart(tmp_path: Path) -> None:
    logs = {rank: f"step 374/600 loss 1.{50 + rank}\n" for rank in range(15)} | {15: "step 187/600 loss 1.9\n"}
    rows = opened(tmp_path / "job", logs)
    shown = [rows.line(n) for n in range(rows.first, rows.end)]
    assert {(line.repeats, line.text) for line in shown} == {(15, "step 374/600 loss 1.50–1.64"), (1, "step 187/600 loss 1.9")}
    number = next(rows.first + n for n, line in enumerate(shown) if line.repeats > 1)
    assert [(line.rank, line.text) for line in rows.members(number)][3] == (3, "step 374/600 loss 1.53")
    assert sum(bool(rows.members(n)) for n in range(rows.first, rows.end)) == 1
    search = Search("1.57", rows)
    search.advance(1.0)
    assert search.count == 1 and search.neighbour(rows.first - 1, 1) == number


def test_fewer_ranks_and_a_filter_fold_only_equal_lines(tmp_path: Path) -> None:
    logs = {rank: f"step 1 loss 1.{rank}\n" for rank in range(4)}
    assert opened(tmp_path / "four", logs).end - opened(tmp_path / "four2", logs).first == 1
    few = opened(tmp_path / "three", {rank: logs[rank] for rank in range(3)})
    assert few.end - few.first == 3
    assert not Filter(least=1).folds_shapes(range(64))


def test_three_states_follow_each_other() -> None:
    states, fold = [], Filter()
    for _ in range(4):
        states.append((fold.folds_shapes(range(8)), fold.dedup))
        fold = fold.next_fold(range(8))
    assert states == [(True, True), (False, True), (False, False), (True, True)]
