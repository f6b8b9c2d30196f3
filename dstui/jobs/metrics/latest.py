"""The latest metrics of a run, from the end of one rank's log: for a table of many runs, where reading whole logs takes too long."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import islice
from math import isfinite
from statistics import median
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.jobs.metrics.engine_metrics import EngineMetrics
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.metrics.series import measured
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.logs.tail import Tail

END = 32 << 10
"""Bytes of a log, and of the engine's report, that are read."""
MAX_METRICS = 64
"""Metrics that are kept."""
BEHIND = 16
"""Steps that may be missing at the end of the engine's report."""
STEP, NUMBER = re.compile(r"(?i)\b(?:step|iter(?:ation)?)s?\W{0,4}\d"), re.compile(r"\d[\d.,]*(?:[eE][-+]?\d+)?")
LINES_PER_SHAPE = 16
"""Lines of one shape that are read for metrics: enough values for a meaningful median."""
PACES = ("step_time", "tokens/s", "samples/s", "steps/s")
"""Metrics for which the median of the last values counts instead of the last one."""


@dataclass(frozen=True, slots=True)
class LatestMetrics:
    """The latest state of a run."""

    step: int | None = None
    steps: int | None = None
    """The total number of steps, if its lines name it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The newest value of each metric."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> LatestMetrics:
        """Return them from their stored form. Invalid values are left out."""
        step, steps = (value if type(value := found.get(name)) is int else None for name in ("step", "steps"))
        metrics = found.get("metrics")
        numbers = metrics.items() if isinstance(metrics, Mapping) else ()
        return cls(step, steps, {str(name): float(value) for name, value in numbers if type(value) in (int, float)})

    def as_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"step": self.step, "steps": self.steps, "metrics": dict(self.metrics)}


def latest_metrics(folder: JobFolder, attempt: int, ranks: Sequence[int]) -> LatestMetrics:
    """Return the latest state of a run, from its first rank, or from its last if only that prints a loss."""
    first, *others = ranks or [0]
    told = _rank_metrics(folder, attempt, first)
    return told if "loss" in told.metrics or not others else _rank_metrics(folder, attempt, others[-1], told)


def _rank_metrics(folder: JobFolder, attempt: int, rank: int, otherwise: LatestMetrics | None = None) -> LatestMetrics:
    view, measure = RankView(""), Measure.of(folder)
    engine, tail = EngineMetrics(folder, rank, attempt), Tail(folder.log(rank, attempt), END, every_state=True)
    try:
        found = engine.read_end(view, END)
        step, view.engine_step = view.engine_step, None
        found += measured(telling([*tail.read(END), *tail.flush()]), view, rank, measure)
    finally:
        engine.close()
        tail.close()
    if not found and otherwise is not None:
        return otherwise
    values = {name: value for name, value in islice(view.metrics.items(), MAX_METRICS) if isfinite(value) or name == "loss"}
    values |= {name: pace for name in PACES if (pace := _usual(found, name)) is not None}
    return LatestMetrics(_latest(step, view.step), view.steps, values)


def telling(lines: Sequence[str]) -> list[str]:
    """Return the lines that decide: of those that name a step and differ only in numbers the last ones, and all others.

    What names no step is counted, so that none of it may be left out. Reading a line for metrics costs ten times as much as this.
    """
    counts: Counter[str] = Counter()
    kept = []
    for line in reversed(lines):
        if STEP.search(line):
            shape = NUMBER.sub("#", line)
            counts[shape] += 1
            if counts[shape] > LINES_PER_SHAPE:
                continue
        kept.append(line)
    return kept[::-1]


def _latest(engine: int | None, lines: int | None) -> int | None:
    """Return the engine's step, or the lines' step if that is slightly ahead: an ending rank may not have reported its last steps."""
    return lines if engine is None or (lines is not None and engine < lines <= engine + BEHIND) else engine


def _usual(found: Sequence[Metric], name: str) -> float | None:
    values = [metric.value for metric in found if metric.name == name and isfinite(metric.value)]
    return median(values) if values else None
