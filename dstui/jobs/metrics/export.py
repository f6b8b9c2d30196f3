"""Export the metrics of a run as a table: by attempt and rank, first those of the engine, then those of the log, in order."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, Protocol

from dstui.jobs.metrics.engine_metrics import EngineMetrics
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.metrics.series import logs_of, measured
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.logs.tail import Tail

Form = Literal["csv", "json"]
COLUMNS = ("step", "rank", "name", "value", "attempt", "source")
CHUNK = 1 << 20
"""Bytes per read."""


class Writes(Protocol):
    """A destination for a table."""

    def write(self, text: str, /) -> object:
        """Write a piece."""


def export(folder: JobFolder, form: Form, to: Writes, only: Collection[int] = ()) -> int:
    """Write the metrics of a run, restricted to the ranks in `only` if given. Return their number.

    NaN and infinity are `nan` and `inf` in CSV, and null in JSON, which lacks them.
    """
    rows = metrics(folder, only)
    return _csv(rows, to) if form == "csv" else _json(rows, folder.name, to)


def metrics(folder: JobFolder, only: Collection[int] = ()) -> Iterator[tuple[int, Metric]]:
    """Yield each metric in the logs of a run with its attempt."""
    measure = Measure.of(folder)
    for (attempt, rank), path in logs_of(folder).items():
        if not only or rank in only:
            yield from ((attempt, metric) for metric in _rank_metrics(path, EngineMetrics(folder, rank, attempt), measure))


def _rank_metrics(path: Path, engine: EngineMetrics, measure: Measure) -> Iterator[Metric]:
    view, tail, rank = RankView(""), Tail(path, every_state=True), engine.rank
    try:
        while metrics := engine.read(view, CHUNK):
            yield from metrics
        view.engine_step = view.step = None
        while True:
            yield from measured(tail.read(CHUNK), view, rank, measure)
            if not tail.taken:
                break
        yield from measured(tail.flush(), view, rank, measure)
    finally:
        tail.close()
        engine.close()


def _csv(rows: Iterator[tuple[int, Metric]], to: Writes) -> int:
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for attempt, metric in rows:
        writer.writerow((metric.step, metric.rank, metric.name, metric.value, attempt, metric.source))
        count += 1
    return count


def _json(rows: Iterator[tuple[int, Metric]], name: str, to: Writes) -> int:
    """Write the rows one by one, since a long run has too many to hold in memory. Return their number.

    Only JSON includes the total number of steps (`steps`), and whether a step only counts lines (`counted`).
    """
    to.write(f'{{"version": 1, "run": {json.dumps(name)}, "metrics": [')
    count, steps = 0, None
    for attempt, metric in rows:
        facts = {**metric.as_json(), "attempt": attempt, "source": metric.source}
        row = {**{column: facts[column] for column in COLUMNS}, "steps": metric.steps, "counted": metric.counted}
        steps = max(steps or 0, metric.steps or 0) or None
        to.write(f"{',' if count else ''}\n{json.dumps(row)}")
        count += 1
    to.write(f'\n], "steps": {json.dumps(steps)}}}\n')
    return count
