"""The content of a plot as data: lines, marks, axes. A pure function of the metrics of one or more runs and the view's settings.

Nothing here knows a screen; `plot/canvas.py` and `printed.py` draw it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.jobs.metrics.buckets import Fault, Point, smoothed, thinned
from dstui.runs.table import short_names

if TYPE_CHECKING:
    from dstui.jobs.metrics.series import Curve, MetricSeries

WEIGHTS = (0.0, 0.6, 0.9, 0.97, 0.99)
"""Levels of smoothing; TensorBoard's usual 0.6 is the second."""
BESIDE = {"loss": "eval_loss"}
"""A metric -> another one in the same plot."""
OTHER_STYLES = ("other", "beside", "rank 3", "rank 4", "rank 5", "rank 6", "rank 7")
"""Styles of other runs."""
LARGEST, LEAST = 1e300, 1e-300
"""Larger values are drawn as this one, and an axis has no smaller range: there must be numbers along it."""
RANK_STYLES = ("rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 5", "rank 6", "rank 7")


@dataclass(frozen=True, slots=True)
class View:
    """The settings of a plot."""

    name: str = "loss"
    each: bool = False
    """True if there is a line for every rank instead of the mean of all."""
    weight: float = 0.0
    log: bool = False


class PlotLine(NamedTuple):
    """A line of the plot; `style` is main, faint, other, beside or one of RANK_STYLES; `label` is written at its end."""

    xs: list[float]
    ys: list[float]
    style: str
    label: str = ""


class Mark(NamedTuple):
    """A value that is not a number: drawn at the top if it is infinite, else at the bottom."""

    x: float
    top: bool


class Axis(NamedTuple):
    """The range of an axis, and its labels with their positions."""

    low: float
    high: float
    ticks: list[float]
    texts: list[str]


EMPTY = Axis(0, 1, [], [])


@dataclass(slots=True)
class Picture:
    """The content of a plot."""

    lines: list[PlotLine] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    attempts: dict[int, float] = field(default_factory=dict)
    """Attempt -> its first step. The first attempt is not marked."""
    x: Axis = EMPTY
    y: Axis = EMPTY
    faults: str = ""
    """The values that are not numbers, in words."""
    left_out: int = 0
    """The number of values without a logarithm."""

    def side(self, x: float) -> Literal["left", "right"]:
        """Return which end of a text is at `x`, so that all of it is visible."""
        return "right" if x > (self.x.low + self.x.high) / 2 else "left"


def picture(
    history: MetricSeries, view: View, cells: tuple[int, int], say: Callable[[str, float], str], others: Sequence[MetricSeries] = ()
) -> Picture:
    """Return a metric of a run (and of other runs) over the steps, for a plot of this many cells. `say` formats a value."""
    sketch = _Sketch(view, 2 * max(cells[0], 20))
    curves = history.curves(view.name, each=view.each)
    last = max((curve.attempt for curve in curves), default=1)
    names = short_names([sanitise(each.folder.name) for each in (history, *others)])
    for curve in curves:
        sketch.curve(curve, "main" if curve.attempt == last else "faint", names[0] if others and curve.attempt == last else "")
    for curve in history.curves(BESIDE.get(view.name, "")):
        sketch.line(curve.points, "beside", label="eval")
    for number, (other, name) in enumerate(zip(others, names[1:], strict=True)):
        for curve in other.curves(view.name)[-1:]:
            sketch.line(curve.points, OTHER_STYLES[number % len(OTHER_STYLES)], view.weight, name)
    shown = sketch.picture
    shown.attempts = {curve.attempt: _first(curve) for curve in reversed(curves) if curve.attempt > 1}
    faults = sorted({fault for curve in curves for fault in curve.faults})
    shown.faults = fault_words(faults)
    shown.marks = [Mark(fault.step, fault.kind == "inf") for fault in faults]
    _frame(shown, view, cells, say)
    return shown


class _Sketch:
    """A picture under construction."""

    def __init__(self, view: View, most: int) -> None:
        """Begin a picture. `most`: the number of points of a line that can be distinguished."""
        self.view, self.most = view, most
        self.picture = Picture()

    def curve(self, curve: Curve, style: str, name: str = "") -> None:
        """Add a run's line, with its name if there are others; the mean of all ranks between extremes, a smoothed line over the raw one."""
        if curve.rank is not None:
            name = RANK_STYLES[curve.rank % len(RANK_STYLES)] if style == "main" else style
            self.line(curve.points, name, self.view.weight, f"r{curve.rank}")
            return
        points = thinned(curve.points, self.most)
        if any(point.low < point.high for point in points):
            self.line([point._replace(mean=point.low) for point in points], "faint")
            self.line([point._replace(mean=point.high) for point in points], "faint")
        elif self.view.weight:
            self.line(points, "faint")
        self.line(curve.points, style, self.view.weight, name)

    def line(self, points: Sequence[Point], style: str, weight: float = 0.0, label: str = "") -> None:
        """Add a line through the means, if there are any."""
        means = smoothed((point.mean for point in points), weight) if weight else [point.mean for point in points]
        drawn = thinned([point._replace(mean=mean) for point, mean in zip(points, means, strict=True)], self.most)
        if self.view.log:
            self.picture.left_out += sum(point.mean <= 0 for point in drawn)
            drawn = [point._replace(mean=math.log10(point.mean)) for point in drawn if point.mean > 0]
        finite = [(point.step, min(max(point.mean, -LARGEST), LARGEST)) for point in drawn if math.isfinite(point.mean)]
        if finite:
            self.picture.lines.append(PlotLine([step for step, _ in finite], [mean for _, mean in finite], style, label))


def _first(curve: Curve) -> float:
    return min([point.step for point in curve.points[:1]] + [float(fault.step) for fault in curve.faults[:1]], default=0.0)


def fault_words(faults: Sequence[Fault]) -> str:
    """Format values that are not numbers: `NaN at step 40`, `inf at step 3 and 7 more`."""
    if not faults:
        return ""
    kind = "NaN" if faults[0].kind == "nan" else faults[0].kind
    return f"{kind} at step {faults[0].step:,}" + (f" and {len(faults) - 1:,} more" if len(faults) > 1 else "")


def _frame(shown: Picture, view: View, cells: tuple[int, int], say: Callable[[str, float], str]) -> None:
    """Return the axes: the range of all lines and marks."""
    xs = [x for line in shown.lines for x in (line.xs[0], line.xs[-1])] + [mark.x for mark in shown.marks]
    ys = [y for line in shown.lines for y in line.ys]
    left, right = _widened(xs, 0.0)
    low, high = _widened(ys, 0.04)
    across = [float(round(x)) for x in ticks(left, right, max(cells[0] // 14, 2))]
    shown.x = Axis(left, right, across, [f"{x:,.0f}" for x in across])
    up = (decades if view.log else ticks)(low, high, max(cells[1] // 4, 2))
    shown.y = Axis(
        low, high, up, _reported([10 ** min(y, math.log10(LARGEST)) for y in up] if view.log else up, lambda value: say(view.name, value))
    )


def _widened(values: Iterable[float], by: float) -> tuple[float, float]:
    found = list(values)
    low, high = min(found, default=0.0), max(found, default=1.0)
    room = (high - low) * by or (abs(high) * 0.1 or 1.0) * (low == high)
    return low - room, high + room


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between two values: 1, 2 or 5 times a power of ten apart."""
    if not high - low > LEAST:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [round((first + n) * step, 12) for n in range(int((high - first * step) / step) + 1)]


def decades(low: float, high: float, most: int) -> list[float]:
    """Return the logarithms of round numbers between two of them (1, 2 and 5 times powers of ten), as many as there is room for."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [power + math.log10(factor) for power in powers for factor in factors if low <= power + math.log10(factor) <= high]
        if len(found) <= most:
            break
    return found[:: math.ceil(len(found) / most)] if len(found) > 1 else ticks(low, high, most)


def _reported(values: Sequence[float], say: Callable[[float], str]) -> list[str]:
    """Format values as texts of the same width."""
    texts = [say(value) for value in values]
    return [text.rjust(max(map(len, texts), default=0)) for text in texts]
