"""Marks on the scroll bar of the log, at errors, warnings and matches of the search."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment, Segments
from rich.style import Style
from textual.scrollbar import ScrollBar, ScrollBarRender

from dstui.logs.log_search import PROBLEM, WARNING, Search
from dstui.tui.kit.text_row import GLYPHS

if TYPE_CHECKING:
    from dstui.logs.log_rows import LogRows

KINDS = ("error", "found", "warning")
"""Kinds of marks; of several in one cell, the first of these is shown."""
MARKS = {"error": GLYPHS["error"], "warning": GLYPHS["warning"], "found": "◆"}


class LogMarks:
    """The marked rows of a log by kind, searched a little at a time, from the end."""

    def __init__(self) -> None:
        self._searches: dict[str, Search] = {}

    def begin(self, lines: LogRows) -> None:
        """Start with another log."""
        named = {"error": PROBLEM, "warning": WARNING}
        self._searches = {kind: Search(pattern, lines, regex=True, own=True) for kind, pattern in named.items()}

    @property
    def waiting(self) -> bool:
        """Return whether there are lines to search."""
        return any(search.waiting for search in self._searches.values())

    def advance(self, seconds: float) -> bool:
        """Search further lines, of those that were read, for about `seconds`. Return whether the marks have changed."""
        changed = [search.advance(seconds / 2, reach=False) for search in self._searches.values() if search.waiting]
        return any(changed)

    def cells(self, first: int, end: int, height: int, search: Search | None) -> dict[int, str]:
        """Return the kind of mark in each cell of a bar for the rows from `first` to before `end`."""
        found = {kind: each.found for kind, each in self._searches.items()} | ({"found": search.found} if search is not None else {})
        places = [first + (end - first) * cell // height for cell in range(height + 1)] if height > 0 and end > first else []
        cells: dict[int, str] = {}
        for cell, (start, stop) in enumerate(pairwise(places)):
            kind = next((kind for kind in KINDS if kind in found and _any_in(found[kind], start, max(stop, start + 1))), "")
            cells |= {cell: kind} if kind else {}
        return cells


def _any_in(rows: array[int], start: int, stop: int) -> bool:
    at = bisect_left(rows, start)
    return at < len(rows) and rows[at] < stop


def draw_marks(bar: ScrollBar, cells: Callable[[int], Mapping[int, str]], styles: Callable[[str], Style]) -> None:
    """Draw marks on a scroll bar from now on."""
    bar.thickness = 1  # it may be made here, before the styles say so
    bar.renderer = marked_bar(cells, styles)  # type: ignore[misc]


def marked_bar(cells: Callable[[int], Mapping[int, str]], styles: Callable[[str], Style]) -> type[ScrollBarRender]:
    """Return a renderer for a scroll bar with marks. `cells` returns the marks for a bar of this height; `styles`: one per kind."""

    class MarkedBar(ScrollBarRender):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for bar in super().__rich_console__(console, options):
                if not isinstance(bar, Segments):
                    yield bar
                    continue
                drawn = list(bar.segments)
                for cell, kind in cells(len(drawn)).items():
                    drawn[cell] = _marked(drawn[cell], MARKS[kind] * self.thickness, styles(kind))
                yield Segments(drawn, new_lines=True)

    return MarkedBar


def _marked(segment: Segment, mark: str, style: Style) -> Segment:
    """Return a cell of the bar with a mark on it. A click on it still moves the bar."""
    below = segment.style or Style()
    ground = below.color if below.reverse else below.bgcolor
    return Segment(mark, Style(color=style.color, bgcolor=ground, bold=True, meta=below.meta))
