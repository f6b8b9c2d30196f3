"""The usage of each GPU, or of each rank on the CPU, in the last minutes: a sparkline of its load and the newest numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span, fit
from dstui.tui.kit.tools import label
from dstui.tui.run.run_head import BARS

if TYPE_CHECKING:
    from dstui.jobs.watch.usage_history import History, Sample

GIB = 1 << 30
SPARK = 20
"""Cells for the last five minutes, 15 seconds each."""
CELL = 76
"""Cells for one GPU if there are more GPUs than lines."""
HOT = 85.0
"""Degrees from which the temperature is a warning: data-centre GPUs lower their clocks a little above."""
MAX_ROWS = 8
"""The most lines of the pane."""


def usage_rows(history: History, width: int, most: int = MAX_ROWS) -> list[Row]:
    """Return a row for each rank, several in a row if there is room; a sentence if nothing is known."""
    if not history.samples:
        return [Row((Span(f"n/a: {history.note or 'the job has no record of its usage'}", "dim"),))]
    cells = [(rank, samples) for rank, samples in sorted(history.samples.items())]
    per_row = max(width // CELL, 1) if len(cells) > most else 1
    cell = width // per_row
    lines = [cells[at : at + per_row] for at in range(0, len(cells), per_row)]
    shown = lines if len(lines) <= most else lines[: most - 1]
    since = max(samples[-1].t for _, samples in cells) - _seconds()
    rows = [Row(tuple(span for rank, samples in line for span in _padded(_cell(rank, samples, since), cell))) for line in shown]
    left = sum(map(len, lines[len(shown) :]))
    return [*rows, Row((Span(f"and {left:,} more", "dim"),))] if left else rows


def _seconds() -> float:
    from dstui.jobs.watch.usage_history import SHOWN

    return SHOWN


def _cell(rank: int, samples: Sequence[Sample], since: float) -> list[Span]:
    last = samples[-1]
    name = f"r{rank}" + (f" GPU {last.device}" if last.device is not None else "")
    spans = [Span(f"{name:<8} ", ""), Span(load_line(samples, since), "accent")]
    spans.append(Span(f" {last.load:>3.0f} %" if last.load is not None else " load n/a", "title"))
    if last.memory is not None:
        of = f"/{last.capacity / GIB:.0f}" if last.capacity else ""
        spans.append(Span(f"  {last.memory / GIB:.1f}{of} GB"))
    if last.temperature is not None:
        spans.append(Span(f"  {last.temperature:.0f} °C", "warning" if last.temperature >= HOT else ""))
    spans += [Span(f"  {last.power:.0f} W")] if last.power is not None else []
    spans += [Span(f"  ▲ slowed: {', '.join(last.throttle)}", "warning")] if last.throttle else []
    return spans


def _padded(spans: list[Span], width: int) -> list[Span]:
    """Return the spans padded or cut to this many cells."""
    kept, room = [], width - 1
    for span in spans:
        if room > 0:
            text = fit(span.text, min(cell_len(span.text), room))
            kept.append(Span(text, span.style))
            room -= cell_len(text)
    return [*kept, Span(" " * (room + 1))]


def load_line(samples: Sequence[Sample], since: float, cells: int = SPARK) -> str:
    """Return the load of the last minutes as bars of 0 to 100 % (of several cores, to the maximum); blank for missing samples."""
    loads: list[list[float]] = [[] for _ in range(cells)]
    for sample in samples:
        if sample.load is not None and sample.t >= since:
            loads[min(int((sample.t - since) / _seconds() * cells), cells - 1)].append(sample.load)
    full = max([100.0, *(value for part in loads for value in part)])
    highest = len(BARS) - 2  # the bar of a full cell would touch the line above
    return "".join(BARS[min(round(sum(part) / len(part) / full * highest), highest)] if part else " " for part in loads)


class UsagePane(RowList):
    """The pane above the log of a wide screen."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="usage", classes="pane")
        self._drawn: tuple[object, ...] = ()

    def show(self, history: History | None) -> None:
        """Draw the history if it has changed."""
        now = (history, self.size.width)
        if history is None or now == self._drawn:
            return
        self._drawn = now
        rows = usage_rows(history, (self.size.width or 110) - self.MARGIN)
        if len(rows) != len(self.rows):
            self.styles.height = len(rows) + 2
        self.show_rows(rows)
        on_cpu = any(samples[-1].kind == "CPU" for samples in history.samples.values())
        label(self, "CPU of each rank, last 5 min" if on_cpu else "GPUs, last 5 min", history.note if history.samples else "")
