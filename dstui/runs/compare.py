"""Compare up to eight runs: differences of their Plans, results of each metric, resources, and how they ended.

A comparison is a table with a column for each run; in JSON it has the raw values. Reading whole logs takes seconds, so use a thread.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan, nan
from statistics import median
from typing import Any, Final, Literal

from dstui.base.dataclass import dataclass
from dstui.facts.measured import Taken
from dstui.jobs.metrics.latest import PACES
from dstui.jobs.metrics.series import MetricSeries
from dstui.jobs.store.plan_diff import same
from dstui.jobs.watch.summary import value_text
from dstui.machine.report import format_size
from dstui.runs.columns import COLUMNS, metric_text, texts_side_by_side
from dstui.runs.run import Run
from dstui.runs.table import BEST, markdown_lines, short_names

MAX_RUNS: Final = 8
SECONDS: Final = 20.0
"""Seconds for reading the logs of all runs; after that, only the part read so far counts, with a remark."""
LESS_IS_BETTER: Final = re.compile(r"(?:.*[_/])?(?:loss|perplexity|ppl|error|wer|step_time)(?:[_/].*)?|train_perplexity")
MORE_IS_BETTER: Final = re.compile(r"(?:.*[_/])?(?:accuracy|acc|f1|bleu|rouge\w*|reward|mfu|tflops)|.*/s")
ABSENT: Final = "–"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one metric of a run. For speeds it is the median, since the last value says little. NaN is a last value too."""

    last: float | None
    best: float | None
    """None if the metric has no best value, or if the median counts."""
    step: int | None
    """The step of the best value."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the comparison: a raw value for each run, and its text."""

    section: Literal["run", "plan", "metric"]
    name: str
    values: tuple[Any, ...]
    texts: tuple[str, ...]
    leader: int | None = None
    """The index of the run with the best value."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of runs."""

    names: tuple[str, ...]
    folders: tuple[str, ...]
    lines: tuple[Line, ...]
    partly: tuple[str, ...] = ()
    """Runs whose logs were not read to their end."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui runs --compare --json` documents."""
        columns = [(line, [None if _is_nan(value) else value for value in line.values]) for line in self.lines]
        rows = [{"section": line.section, "name": line.name, "values": values, "best": line.leader} for line, values in columns]
        return {"version": 1, "runs": list(self.names), "folders": list(self.folders), "rows": rows, "partly": list(self.partly)}

    def as_texts(self) -> list[list[str]]:
        """Return a table with its header first; the best value of a row is marked."""
        marked = [[line.name, *(f"{BEST if n == line.leader else ''}{text}" for n, text in enumerate(line.texts))] for line in self.lines]
        return [["", *self.names], *marked]

    def as_markdown(self) -> str:
        """Return the table in Markdown, for an issue or a notebook."""
        partly = f"\n\n{', '.join(self.partly)} was not read to the end." if self.partly else ""
        return "\n".join(markdown_lines(self.as_texts())) + partly


def compare(runs: Sequence[Run], seconds: float = SECONDS) -> Comparison:
    """Compare runs."""
    read = [_outcomes(run, seconds / max(len(runs), 1)) for run in runs]
    lines = [*_run_lines(runs), *_plan_lines(runs), *_metric_lines([outcomes for outcomes, _ in read])]
    partly = tuple(run.name for run, (_, complete) in zip(runs, read, strict=True) if not complete)
    return Comparison(short_names([run.name for run in runs]), tuple(str(run.folder.path) for run in runs), tuple(lines), partly)


def _run_lines(runs: Sequence[Run]) -> Iterator[Line]:
    """Yield how each run ended, and the resources that it took compared to the forecast."""
    for name in ("state", "took", "step", "memory", "ranks", "hosts", "why"):
        shown = COLUMNS[name]
        values, texts = [shown.value(run) for run in runs], [shown.text(run) for run in runs]
        if any(texts):
            leader = _leader(values, min) if name == "memory" else None
            yield Line("run", name, tuple(values), tuple(text or ABSENT for text in texts), leader)
    for name, scale, size in BESIDE_FORECAST:
        values = [getattr(run.taken, size, None) for run in runs]
        if any(value is not None for value in values):
            texts = [_beside(size, value, _scale(run.taken, scale)) for value, run in zip(values, runs, strict=True)]
            yield Line("run", name, tuple(values), tuple(texts))


BESIDE_FORECAST: Final = (
    ("memory, against the forecast", "memory_scale", "gpu_bytes"),
    ("RAM of a node, against the forecast", "host_scale", "node_bytes"),
    ("step time, against the forecast", "step_scale", "step_seconds"),
)
"""The label of a line, and the fields of `Taken` that it shows."""
assert all(field in Taken.__slots__ for _, *fields in BESIDE_FORECAST for field in fields)


def _scale(taken: Taken | None, name: str) -> float | None:
    """Return a ratio to the forecast. Without GPUs the forecast's memory is the host's."""
    on_host = taken is not None and taken.gpu_bytes is None
    found: float | None = getattr(taken, "memory_scale" if on_host and name == "host_scale" else name, None)
    return found


def _beside(size: str, value: float | None, scale: float | None) -> str:
    if value is None:
        return ABSENT
    text = value_text("step_time", value) if size == "step_seconds" else format_size(int(value))
    return text if scale is None else f"{text} ({scale - 1:+.0%})"


def _plan_lines(runs: Sequence[Run]) -> Iterator[Line]:
    """Yield the keys that differ between the Plans, in the order of the first Plan that has them."""
    missing = object()
    for path in dict.fromkeys(path for run in runs for path in run.settings):
        values = [run.settings.get(path, missing) for run in runs if run.plan is not None]
        if any(value is missing or not same(value, values[0]) for value in values):
            told = [run.settings.get(path) for run in runs]
            given = iter(texts_side_by_side([run.spelled(path) for run in runs if path in run.settings]))
            texts = [(next(given) or ABSENT) if path in run.settings else ABSENT for run in runs]
            yield Line("plan", path.removeprefix("deepspeed."), tuple(told), tuple(texts))


def _metric_lines(read: Sequence[Mapping[str, Outcome]]) -> Iterator[Line]:
    for name in dict.fromkeys(name for outcomes in read for name in outcomes):
        found = [outcomes.get(name) for outcomes in read]
        better = better_of(name)
        last = [one.last if one else None for one in found]
        shown = f"{name}, median" if name in PACES else name
        yield Line("metric", shown, tuple(last), tuple(_value(name, value) for value in last), better and _leader(last, better))
        if better is not None and name not in PACES and any(one and one.best != one.last for one in found):
            best = [one.best if one else None for one in found]
            texts = [_value(name, one.best) + (f" at {one.step}" if one.step is not None else "") if one else ABSENT for one in found]
            yield Line("metric", f"{name}, best", tuple(best), tuple(texts), _leader(best, better))


def _value(name: str, value: float | None) -> str:
    return ABSENT if value is None else metric_text(name, value)


Better = Callable[[Iterable[float]], float]


def better_of(name: str) -> Better | None:
    """Return the function that chooses the best of several values of a metric; None if that makes no sense for it."""
    if MORE_IS_BETTER.fullmatch(name):
        return max
    return min if LESS_IS_BETTER.fullmatch(name) else None


def _leader(values: Sequence[float | None], better: Better) -> int | None:
    """Return the index of the best value; None if there are not two different ones."""
    told = [value for value in values if value is not None and not _is_nan(value)]
    return values.index(better(told)) if len(set(told)) > 1 else None


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _outcomes(run: Run, seconds: float) -> tuple[dict[str, Outcome], bool]:
    """Return the result of each metric of a run, and whether its logs were read completely."""
    series, deadline = MetricSeries(run.folder), time.monotonic() + seconds
    try:
        while series.advance(0.2) and time.monotonic() < deadline:
            pass
        return {name: _outcome(series, name) for name in series.names()}, series.complete and series.stride == 1
    finally:
        series.close()


def _outcome(series: MetricSeries, name: str) -> Outcome:
    """Return the last and the best value, each the mean of all ranks."""
    points = [point for curve in series.curves(name) for point in curve.points]
    better = better_of(name)
    end = series.curves(name)[-1]
    last = end.points[-1].mean if end.points else None
    if end.faults and (not end.points or end.faults[-1].step > end.points[-1].step):
        last = nan
    if not points:
        return Outcome(last, None, None)
    if name in PACES:
        return Outcome(median(point.mean for point in points), None, None)
    best = None if better is None else better(point.mean for point in points)
    step = next((round(point.step) for point in points if point.mean == best), None)
    return Outcome(last, best, step)
