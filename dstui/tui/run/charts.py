"""The metrics of a job as small plots beside its log, and as two rows of sparklines if there is no room for plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events

from dstui.jobs.metrics.buckets import Buckets, thinned
from dstui.jobs.watch.summary import value_text
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span, fit
from dstui.tui.run.braille import braille
from dstui.tui.run.run_head import Fact, Sparks, fitting, si, spark
from dstui.tui.run.run_series import USED, RunSeries, usage_series
from dstui.tui.session.settings import setting

if TYPE_CHECKING:
    from dstui.jobs.watch.usage_history import History

NARROWEST, LOWEST = 34, 7
"""The smallest width and height of a plot in cells, including its frame."""
TALL, TALLEST = 20, 30
"""The height of a plot from which there need not be others beside it, and the largest one."""
SPARK = 12
"""Cells of a sparkline."""
FIRST_VALUES = 2
"""The number of values from which there is a curve."""
WAITING = "Plots begin with the second value of a rank."


def plot(name: str, series: Buckets, width: int, height: int) -> list[tuple[Span, ...]]:
    """Return the lines of a framed plot: name and newest value at the top, first and last step at the bottom."""
    points = thinned(series.points, 2 * max(width, 1))
    low, high = min(point.low for point in points), max(point.high for point in points)
    top, bottom = _text(name, high), _text(name, low)
    margin = min(max(cell_len(top), cell_len(bottom)), width // 3)
    room, inner = width - 3 - margin, height - 2
    curve = braille([(point.step, point.mean) for point in points], (room, inner), low, high)
    labels = {0: top, inner - 1: bottom} if low < high else {inner // 2: top}
    title = [Span(name.replace("_", " "), "title"), Span(f" {_text(name, series.last)}", "accent")]
    if faults := len(series.faults):
        title.append(Span(f" ✖ {faults} no number", "error"))
    what = "seconds" if name.startswith(tuple(USED)) else "step"
    steps = Span(f"{what} {points[0].step:,.0f} to {points[-1].step:,.0f}", "dim")
    lines = [_edge("╭╮", title, width)]
    for number, drawn in enumerate(curve):
        label = fit(labels.get(number, "").rjust(margin), margin)
        lines.append((Span("│", "lines"), Span(f"{label} ", "dim"), Span(drawn, "accent"), Span("│", "lines")))
    return [*lines, _edge("╰╯", [steps], width)]


def _text(name: str, value: float | None) -> str:
    """Format a value as elsewhere; a speed in three digits, a load in percent."""
    if value is not None and " util" in name:
        return f"{value:.0f} %"
    return "" if value is None else si(value) if name.endswith("/s") and value >= 0 else value_text(name, value)


def _edge(corners: str, text: list[Span], width: int) -> tuple[Span, ...]:
    """Return the line above or below a plot with a text in it."""
    room = width - 5
    shown: list[Span] = []
    for span in text:
        cut = fit(span.text, min(cell_len(span.text), room))
        shown.append(Span(cut, span.style))
        room -= cell_len(cut)
    return (Span(f"{corners[0]}─ ", "lines"), *shown, Span(f" {'─' * room}{corners[1]}", "lines"))


def grid(series: Mapping[str, Buckets], width: int, height: int) -> tuple[list[Row], list[list[str]]]:
    """Return the rows of as many plots as fit, and their names by row of the grid."""
    drawable = {name: each for name, each in series.items() if len(each.points) >= FIRST_VALUES}
    columns = max(width // NARROWEST, 1)
    most = columns * max(height // LOWEST, 1)
    names = list(drawable)[:most]
    if not names or height < LOWEST:
        return [Row((Span(WAITING, "dim"),))], []
    columns = next((few for few in range(1, columns) if -(-len(names) // few) * TALL <= height), min(columns, len(names)))
    lines = [names[at : at + columns] for at in range(0, len(names), columns)]
    tall = min(height // len(lines), TALLEST)
    rows: list[Row] = []
    for line in lines:
        plots = [plot(name, drawable[name], width // len(line), tall) for name in line]
        rows += [Row(tuple(span for each in plots for span in each[n])) for n in range(tall)]
    return rows, lines


def pinned_first(series: Mapping[str, Buckets], used: Mapping[str, Buckets], pinned: Sequence[str]) -> dict[str, Buckets]:
    """Return the pinned series, then the others; `gpu util` pins that of each rank, and of what ranks used nothing else is shown."""
    every = {**series, **used}
    first = [name for pin in pinned for name in every if name == pin or (pin in USED and name.startswith(f"{pin} r"))]
    return {name: every[name] for name in dict.fromkeys([*first, *series])}


def sparks(series: Mapping[str, Buckets], width: int, most: int = 2) -> Sparks:
    """Return at most this many rows of sparklines."""
    facts = [_spark_fact(place, name, each) for place, (name, each) in enumerate(series.items()) if len(each.points) >= FIRST_VALUES]
    drawn = Sparks([], [])
    while facts and len(drawn.rows) < most:
        shown = fitting(facts, width)
        fits = sum(span.style == "accent" for span in shown.left)
        drawn.rows.append(shown)
        drawn.names.extend(fact.metric for fact in facts[:fits])
        facts = facts[fits:]
    return drawn


def _spark_fact(place: int, name: str, series: Buckets) -> Fact:
    line = spark([point.mean for point in series.points], SPARK)
    spans = (Span(f"{name.replace('_', ' ')} ", "dim"), Span(line, "accent"), Span(f" {_text(name, series.last)}", "title"))
    return Fact(place, spans, name)


class Charts(RowList):
    """The plots at the right of a wide screen. A click enlarges one."""

    can_focus = False
    MARGIN = 0

    def __init__(self) -> None:
        super().__init__(id="charts")
        self.pick: Callable[[str], object] = lambda _name: None
        """Called with the metric of a clicked plot."""
        self._drawn: tuple[object, ...] = ()
        self._names: list[list[str]] = []

    def show(self, series: RunSeries, own: tuple[str, ...], history: History | None = None) -> None:
        """Draw what is new. What the ranks used has a plot where it is pinned: it is above the log already."""
        pinned = tuple(setting("pinned"))
        now = (series, series.count, self.size, own, history, pinned)
        if now != self._drawn and self.size.width:
            self._drawn = now
            shown = pinned_first(series.ordered(own), usage_series(history), pinned)
            rows, self._names = grid(shown, self.size.width, self.size.height)
            self.show_rows(rows)

    def on_click(self, event: events.Click) -> None:
        """Enlarge the plot that was clicked."""
        if self._names and event.y < len(self.rows):
            line = self._names[event.y * len(self._names) // len(self.rows)]
            self.pick(line[min(event.x * len(line) // self.size.width, len(line) - 1)])
