"""The ranks of a job at a glance, grouped by host if there are several; a click selects one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual import events
from textual.message import Message

from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span
from dstui.tui.kit.tools import label
from dstui.tui.run.host_lines import HOST_WORST, Columns, HostLine, host_row
from dstui.tui.run.rank_cell import Cell, counts, spans, steps_text, stragglers_first, total_row, worst_first

if TYPE_CHECKING:
    from dstui.jobs.metrics.measurements import RankView


FULL, WIDE, TIGHT = 72, 48, 16
"""Cells for one rank: with words and usage for few ranks, with words, or without for many. The width does not depend on the content, so
that cells stay in place."""
MANY = 64
"""More ranks than this never get a cell with words."""
INDENT = 4
"""Cells before the ranks of a host."""


class Selection(NamedTuple):
    """The rank or host whose log is shown; neither means all of them."""

    rank: int | None = None
    host: str | None = None

    def among(self, ranks: Mapping[int, RankView]) -> dict[int, RankView]:
        """Return the selected ranks if they are several; empty if one rank is selected."""
        return {number: view for number, view in ranks.items() if self.rank is None and self.host in (None, view.host)}


class StripLine(NamedTuple):
    """One line, and what a click on it selects: a host, or one of these ranks, each this many cells wide."""

    row: Row
    host: str = ""
    ranks: tuple[int, ...] = ()
    indent: int = 0
    cell: int = TIGHT


def strip(cells: Sequence[Cell], hosts: Sequence[HostLine], width: int, most: int, at: Selection) -> list[StripLine]:
    """Return at most this many lines; the ranks of the selected host are listed."""
    if len(hosts) < 2:
        return _single_host_lines(cells, width, most, at.rank)
    here = next((line for line in hosts if line.name == at.host or any(cell.rank == at.rank for cell in line.ranks)), None)
    if here is not None:
        ranks = _cells(here.ranks, width, most - 1, at.rank) or _some(here.ranks, width, most - 1, at.rank)
        return [StripLine(host_row(here, Columns.of([here], width), width, opened=True), here.name), *ranks]
    shown = hosts if len(hosts) <= most else hosts[: most - 2]
    columns = Columns.of(shown, width)
    for wide in _widths(cells) if 2 * len(hosts) <= most else ():
        opened = [line for each in hosts for line in _opened(each, columns, width, wide)]
        if len(opened) <= most:
            return opened
    lines = [StripLine(host_row(line, columns, width), line.name) for line in shown]
    return lines if shown is hosts else [StripLine(total_row(cells)), *lines, StripLine(_more(hosts[most - 2 :]))]


def _opened(line: HostLine, columns: Columns, width: int, cell: int) -> list[StripLine]:
    ranks = _in_lines(line.ranks, width, cell, None, INDENT)
    return [StripLine(host_row(line, columns, width, opened=True), line.name), *ranks]


def _single_host_lines(cells: Sequence[Cell], width: int, most: int, rank: int | None) -> list[StripLine]:
    whole = _cells(cells, width, most, rank, 0)
    return whole or [StripLine(total_row(cells)), *_some(cells, width, most - 1, rank, 0)] if cells else []


def _cells(cells: Sequence[Cell], width: int, most: int, rank: int | None, indent: int = INDENT) -> list[StripLine]:
    """Return a cell for each rank; none if they need more lines."""
    for cell in _widths(cells):
        if len(cells) <= most * max((width - indent) // cell, 0):
            return _in_lines(cells, width, cell, rank, indent)
    return []


def _some(cells: Sequence[Cell], width: int, most: int, rank: int | None, indent: int = INDENT) -> list[StripLine]:
    """Return the ranks in the worst state, as many as fit."""
    tight = _widths(cells)[-1]
    return _in_lines(worst_first(cells)[: most * max(width // tight, 1)], width, tight, rank, indent)[:most]


def _widths(cells: Sequence[Cell]) -> tuple[int, ...]:
    """Return the possible widths of a cell, the most informative first."""
    tight = TIGHT + any(cell.rank > 99 for cell in cells)  # a number of three digits takes the blank between two cells
    return (FULL, WIDE, tight) if len(cells) <= MANY else (tight,)


def _in_lines(cells: Sequence[Cell], width: int, cell: int, rank: int | None, indent: int) -> list[StripLine]:
    per_line = (width - indent) // cell
    if per_line < 1:
        return []
    cells = stragglers_first(cells)
    lines = [cells[start : start + per_line] for start in range(0, len(cells), per_line)]
    return [_line(part, cell, rank, indent) for part in lines]


def _line(cells: Sequence[Cell], cell: int, rank: int | None, indent: int) -> StripLine:
    drawn = [span for each in cells for span in spans(each, cell, usage=cell >= FULL, chosen=each.rank == rank)]
    before = (Span(" " * indent),) if indent else ()
    return StripLine(Row((*before, *drawn)), ranks=tuple(each.rank for each in cells), indent=indent, cell=cell)


def _more(left: Sequence[HostLine]) -> Row:
    """Return a summary of the hosts that have no line: their number, the worst state, and the states of their ranks."""
    ranks = [cell for line in left for cell in line.ranks]
    odd = [f"{n:,} {word}  " for word in HOST_WORST[:7] if (n := sum(line.word == word for line in left))]
    ends = [Span(text, "warning") for text in odd]
    return Row((Span(f" {len(left):,} more hosts  ", "dim"), *ends, *counts(ranks), Span(f"{steps_text(ranks)}  h lists all", "dim")))


FEW = 36
"""Lines of a screen that is too low for a line per rank."""


class RankStrip(RowList):
    """The strip. A click on a rank shows its log, one on a host the log of the host's ranks."""

    can_focus = False
    MARGIN = 1

    class RankPicked(Message):
        """A cell was clicked."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    class HostPicked(Message):
        """The line of a host was clicked."""

        def __init__(self, host: str) -> None:
            super().__init__()
            self.host = host

    def __init__(self) -> None:
        super().__init__(id="ranks", classes="pane")
        self._lines: list[StripLine] = []

    def show(self, cells: Sequence[Cell], hosts: Sequence[HostLine], at: Selection) -> None:
        """Draw the ranks. `at`: the selection."""
        most = 8 if self.app.size.height >= FEW else 4
        before = len(self._lines)
        self._lines = strip(cells, hosts, (self.size.width or 111) - self.MARGIN, most, at)
        self.show_rows([line.row for line in self._lines])
        if len(self._lines) != before:
            self.styles.height = min(len(self._lines), most) + 2
        label(self, "Ranks", hosts[0].name if len(hosts) == 1 else f"{len(hosts)} hosts" if hosts else "")

    def on_click(self, event: events.Click) -> None:
        """Show the log of the rank or host that was clicked."""
        y, x = event.y - self.gutter.top, event.x - self.gutter.left - self.MARGIN
        if not 0 <= y < len(self._lines):
            return
        line = self._lines[y]
        at = (x - line.indent) // line.cell
        if line.host:
            self.post_message(self.HostPicked(line.host))
        elif 0 <= at < len(line.ranks):
            self.post_message(self.RankPicked(line.ranks[at]))
