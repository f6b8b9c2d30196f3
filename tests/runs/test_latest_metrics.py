"""Metrics for a table of runs, read from the end of a log."""

from __future__ import annotations

from pathlib import Path

from dstui.jobs.metrics.latest import LINES_PER_SHAPE, latest_metrics, telling
from tests.jobs.made import make_job


def test_latest_lines_and_rare_metrics_and_counts_are_read(tmp_path: Path) -> None:
    steps = [f"step {n}/600 loss {n / 100} lr 1e-4" for n in range(500)]
    log = ["step 3 eval_loss 2.5", *steps]
    assert telling(log) == [log[0], *steps[-LINES_PER_SHAPE:]]
    found = latest_metrics(make_job(tmp_path / "named", logs={0: "\n".join(log) + "\n"}), 1, [0])
    assert (found.step, found.steps, found.metrics["loss"], found.metrics["eval_loss"]) == (499, 600, 4.99, 2.5)
    counted = [f"loss {n}" for n in range(40)]
    assert telling(counted) == counted
