"""What a run told last, by the end of what one of its ranks wrote: for a table of many runs, where nobody waits for whole logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from statistics import median
from typing import Any

from dstui.jobs.metrics.engine_metrics import EngineMetrics
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.metrics.series import measured
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.logs.tail import Tail

END = 32 << 10
"""Bytes of a log, and of what the engine reports, that are read."""
MOST = 64
"""Metrics that are kept."""
BEHIND = 16
"""Steps that the engine's report may lack at the end."""
PACES = ("step_time", "tokens/s", "samples/s", "steps/s")
"""Metrics of which the last value alone says little: the median of the last ones counts."""


@dataclass(frozen=True, slots=True)
class Glance:
    """Where a run stands, or stood at its end."""

    step: int | None = None
    steps: int | None = None
    """How many there will be, where its lines say so."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The newest value of each."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Glance:
        """Return what `as_json` has written; what makes no sense is left out."""
        step, steps = (value if type(value := found.get(name)) is int else None for name in ("step", "steps"))
        metrics = found.get("metrics")
        numbers = metrics.items() if isinstance(metrics, Mapping) else ()
        return cls(step, steps, {str(name): float(value) for name, value in numbers if type(value) in (int, float)})

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"step": self.step, "steps": self.steps, "metrics": dict(self.metrics)}


def glance(folder: JobFolder, attempt: int, ranks: Sequence[int]) -> Glance:
    """Return where a run stands: by its first rank, or by its last, where only that one tells a loss."""
    first, *others = ranks or [0]
    told = _of_rank(folder, attempt, first)
    return told if "loss" in told.metrics or not others else _of_rank(folder, attempt, others[-1], told)


def _of_rank(folder: JobFolder, attempt: int, rank: int, otherwise: Glance | None = None) -> Glance:
    view, measure = RankView(""), Measure.of(folder)
    engine, tail = EngineMetrics(folder, rank, attempt), Tail(folder.log(rank, attempt), END, every_state=True)
    try:
        found = engine.read_end(view, END)
        step, view.engine_step = view.engine_step, None
        found += measured([*tail.read(END), *tail.flush()], view, rank, measure)
    finally:
        engine.close()
        tail.close()
    if not found and otherwise is not None:
        return otherwise
    values = {name: value for name, value in islice(view.metrics.items(), MOST) if isfinite(value) or name == "loss"}
    values |= {name: pace for name in PACES if (pace := _usual(found, name)) is not None}
    return Glance(_latest(step, view.step), view.steps, values)


def _latest(engine: int | None, lines: int | None) -> int | None:
    """Return the engine's step, or that of the lines, where these are only ahead: a rank that ends may not have reported its last steps."""
    return lines if engine is None or (lines is not None and engine < lines <= engine + BEHIND) else engine


def _usual(found: Sequence[Metric], name: str) -> float | None:
    values = [metric.value for metric in found if metric.name == name and isfinite(metric.value)]
    return median(values) if values else None
