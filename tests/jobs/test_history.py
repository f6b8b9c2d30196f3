"""The metrics of a whole run for a plot: complete, in bounded memory, live, and with NaN kept visible."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from dstui.jobs.metrics.buckets import LIMIT, Buckets, Fault, Point, smoothed, thinned
from dstui.jobs.metrics.series import KEPT_RANKS, Curve, MetricSeries
from dstui.jobs.store.folder import JobFolder
from tests.jobs.made import make_job


def read_all(folder: JobFolder) -> MetricSeries:
    """Read everything that exists now."""
    history = MetricSeries(folder)
    while history.advance(0.01):
        pass
    return history


def values(curve: Curve) -> list[tuple[float, float]]:
    return [(point.step, point.mean) for point in curve.points]


def test_metric_of_all_ranks_is_their_mean_with_minimum_and_maximum(tmp_path: Path) -> None:
    logs = {rank: "".join(f"step {n} loss {n + rank}\n" for n in (1, 2)) for rank in (0, 1, 5)}
    history = read_all(make_job(tmp_path / "job", logs=logs))
    (curve,) = history.curves("loss")
    assert curve.points == [Point(1, 3, 1, 6), Point(2, 4, 2, 7)]
    assert [(curve.rank, values(curve)[0]) for curve in history.curves("loss", each=True)] == [(0, (1, 1)), (1, (1, 2)), (5, (1, 6))]
    assert history.tellers("loss") == [0, 1, 5] and list(history.names()) == ["loss"]


def test_first_ranks_have_curves_and_all_ranks_are_in_the_mean(tmp_path: Path) -> None:
    history = read_all(make_job(tmp_path / "job", logs={rank: f"step 1 loss {rank}\n" for rank in range(40)}))
    assert [curve.rank for curve in history.curves("loss", each=True)] == list(range(KEPT_RANKS))
    assert history.curves("loss")[0].points == [Point(1, 19.5, 0, 39)]


def test_attempts_follow_each_other_on_the_steps(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 1 loss 4\nstep 2 loss 3\n"}, attempt=2)
    folder.prepare(2)
    folder.log(0, 2).write_text("step 2 loss 2.5\nstep 3 loss 2\n")
    first, second = read_all(folder).curves("loss")
    assert (first.attempt, second.attempt) == (1, 2)
    assert (values(first), values(second)) == ([(1, 4), (2, 3)], [(2, 2.5), (3, 2)])


def test_new_values_appear_while_the_plot_is_open(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 1 loss 4\nstep 2 lo"}, state="running")
    history = read_all(folder)
    with folder.log(0).open("a") as log:
        log.write("ss 3\n")
    assert history.advance(1.0)
    assert values(history.curves("loss")[0]) == [(1, 4), (2, 3)]


def test_unterminated_last_line_counts_when_the_job_has_ended(tmp_path: Path) -> None:
    assert values(read_all(make_job(tmp_path / "job", logs={0: "step 1 loss 4\nstep 2 loss 3"})).curves("loss")[0]) == [(1, 4), (2, 3)]


def test_numbers_beside_a_progress_bar_get_its_step_once(tmp_path: Path) -> None:
    bars = "".join(f"\r{n:3}%|#    | {n}/100 [00:{n:02}<01:00, loss={5 - n / 10}]" * 2 for n in range(1, 5))
    assert values(read_all(make_job(tmp_path / "job", logs={0: bars + "\n"})).curves("loss")[0]) == [(1, 4.9), (2, 4.8), (3, 4.7), (4, 4.6)]


def test_nan_is_kept_with_its_step(tmp_path: Path) -> None:
    history = read_all(make_job(tmp_path / "job", logs={0: "step 1 loss 4\nstep 2 loss nan\nstep 3 loss -inf\nstep 4 loss 1\n"}))
    (curve,) = history.curves("loss")
    assert (values(curve), curve.faults) == ([(1, 4), (4, 1)], [Fault(2, "nan"), Fault(3, "-inf")])


def test_long_run_takes_bounded_memory_and_loses_no_spike() -> None:
    series = Buckets()
    for step in range(100_000):
        series.add(step, 1e6 if step == 54_321 else 1.0)
        if step % 10 == 0:
            series.add(step, math.nan)
    points = series.points
    assert LIMIT / 4 < len(points) <= LIMIT and len(series.faults) <= LIMIT
    assert max(point.high for point in points) == 1e6 and min(point.low for point in points) == 1.0
    assert [point.step for point in points] == sorted(point.step for point in points)
    assert series.faults[0] == Fault(0, "nan") and series.last == 1.0


def test_short_run_is_kept_unchanged() -> None:
    series = Buckets()
    for step in range(LIMIT):
        series.add(3 * step, float(step))
    assert [(point.step, point.mean) for point in thinned(series.points, LIMIT)] == [(3 * n, n) for n in range(LIMIT)]


def test_smoothing_is_not_biased_towards_zero_at_the_start() -> None:
    assert smoothed([5.0, 5.0, 5.0], 0.9) == pytest.approx([5.0, 5.0, 5.0])
    assert smoothed([1.0, 3.0], 0.5) == pytest.approx([1.0, (0.25 * 1 + 0.5 * 3) / 0.75])


def test_garbage_log_and_vanished_folder_do_no_harm(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 1 loss 2\n"})
    folder.log(1).write_bytes(bytes(range(256)) * 2000)
    assert values(read_all(folder).curves("loss")[0])[0] == (1, 2)
    assert read_all(JobFolder(tmp_path / "nothing")).names() == {}


def test_huge_logs_are_sampled_at_equal_distances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dstui.jobs.metrics.series.WHOLE", 1 << 19)
    folder = make_job(tmp_path / "job", logs={0: "".join(f"step {n} loss {n}\n" for n in range(100_000))}, state="running")
    history = read_all(folder)
    with folder.log(0).open("a") as log:
        log.write("step 100000 loss 100000\n")
    history.advance(1.0)
    (curve,) = history.curves("loss")
    steps = [point.step for point in curve.points]
    assert history.stride == 5 and len(steps) > 40
    assert max(after - before for before, after in pairwise(steps)) < 15_000, "they are spread over the run"
    assert (steps[0], max(point.high for point in curve.points)) == (pytest.approx(0, abs=200), 100_000)
    assert all(point.step == pytest.approx(point.mean) for point in curve.points), "no line is cut"


def test_state_has_the_same_sign_in_every_face() -> None:
    from dstui.jobs.store.records import STATE_GLYPHS
    from dstui.tui.run.run_head import STATES

    assert {state: glyph for state, (glyph, _) in STATES.items()} == STATE_GLYPHS
