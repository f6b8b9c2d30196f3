"""Layout of log lines on the screen: their prefixes and, if wrapped, which part of which line is in which row."""

from __future__ import annotations

from math import isnan
from typing import Protocol

from rich.cells import cell_len
from textual.geometry import Offset, Region, Size
from textual.strip import Strip

from dstui.logs.log_blocks import EmptyLog
from dstui.logs.log_rows import LogRows
from dstui.logs.time_parsing import format_clock
from dstui.tui.run.run_head import clock
from dstui.tui.run.shown_lines import ShownLines
from dstui.tui.session.settings import setting

KINDS = ("clock", "since start", "none")
"""The text before a line: the time of day, the time since the start, nothing."""
CLOCK, WHO = 9, 6
"""Cells for the time of a line, and for its rank."""


class Window(Protocol):
    """The part of the view that the layout uses."""

    lines: LogRows | EmptyLog
    follow: bool
    stamps: Stamps
    host_width: int

    @property
    def size(self) -> Size: ...
    @property
    def scrollable_content_region(self) -> Region: ...
    @property
    def scroll_offset(self) -> Offset: ...
    @property
    def max_scroll_y(self) -> int: ...
    @property
    def shown(self) -> ShownLines: ...


class Stamps:
    """The times before the lines, in the chosen format."""

    def __init__(self) -> None:
        self.kind: str = setting("timestamps")
        self.started: float | None = None
        """The job's start, the zero of times since the start."""

    def advance(self) -> str:
        """Switch to the next format and return it."""
        self.kind = KINDS[(KINDS.index(self.kind) + 1) % len(KINDS)]
        return self.kind

    def width(self, since: float) -> int:
        """Return their width in cells for a log that begins at this time; 0 if no time is known."""
        return 0 if self.kind == "none" or isnan(since) else CLOCK

    def text(self, moment: float) -> str:
        """Return the time of a line."""
        if self.kind == "clock" or self.started is None or isnan(moment):
            return format_clock(moment).ljust(CLOCK)
        return clock(max(moment - self.started, 0.0)).rjust(CLOCK - 1).ljust(CLOCK)


class Wrapping:
    """Long lines wrapped into several rows. Scrolling is by lines; when following, the last row is the end of the last line."""

    def __init__(self, view: Window) -> None:
        self.on: bool = setting("wrap")
        self._view = view
        self._laid_out: tuple[object, list[tuple[int, int]]] = (None, [])

    @property
    def room(self) -> int:
        """Return the width of a row without the scroll bar."""
        return max(self._view.scrollable_content_region.width, 2)

    @property
    def margin(self) -> int:
        """Return the width of the prefix of each line."""
        return self._view.host_width + WHO + self._view.stamps.width(self._view.lines.since)

    @property
    def top(self) -> int:
        """Return the number of the first visible line."""
        return self._view.lines.first + self._view.scroll_offset.y

    @property
    def in_view(self) -> range:
        """Return the numbers of the visible lines."""
        if not self.on:
            return range(self.top, min(self.top + self._view.size.height, self._view.lines.end))
        rows = self.rows()
        return range(rows[0][0], rows[-1][0] + 1) if rows else range(0)

    @property
    def at_end(self) -> bool:
        """Return whether the end of the log is visible."""
        if self.on:
            return self.rows(end=False)[-1:] == self.rows(end=True)[-1:]
        return self._view.scroll_offset.y >= self._view.max_scroll_y

    @property
    def end_offset(self) -> int:
        """Return the scroll offset that shows the end."""
        rows = self.rows(end=True) if self.on else []
        return rows[0][0] - self._view.lines.first if rows else self._view.max_scroll_y

    def offset_around(self, number: int) -> int:
        """Return the scroll offset that centres a line in the view."""
        top, room = number, self._view.size.height // 2
        while self.on and top > self._view.lines.first and (room := room - self._rows_of(top - 1)) >= 0:
            top -= 1
        return max((top if self.on else number - room) - self._view.lines.first, 0)

    def line_at(self, y: int) -> int:
        """Return the number of the line in a row; a number that no line has if the row is empty."""
        rows = self.rows() if self.on else []
        return self.top + y if not self.on else rows[y][0] if 0 <= y < len(rows) else self._view.lines.end

    def rows(self, *, end: bool | None = None) -> list[tuple[int, int]]:
        """Return the line and the part of it in each visible row: counted from the end when following or if `end` is set."""
        view, lines, height = self._view, self._view.lines, self._view.size.height
        end = view.follow if end is None else end
        last = view.shown.line(lines.end - 1).text if lines.end > lines.first else ""
        key = (lines, lines.first, lines.end, last, height, self.room, view.scroll_offset.y, end, self.margin)
        if key != self._laid_out[0]:
            with view.shown.painting():
                rows = self._lay_out(range(lines.end - 1, lines.first - 1, -1) if end else range(self.top, lines.end), height, end=end)
            self._laid_out = None if view.shown.late else key, rows[-height:] if end else rows[:height]
        return self._laid_out[1]

    def _lay_out(self, numbers: range, height: int, *, end: bool) -> list[tuple[int, int]]:
        rows: list[tuple[int, int]] = []
        for number in numbers:
            if len(rows) >= height:
                break
            parts = [(number, part) for part in range(self._rows_of(number))]
            rows = [*parts, *rows] if end else [*rows, *parts]
        return rows

    def _rows_of(self, number: int) -> int:
        return max(-(-cell_len(self._view.shown.line(number).text) // max(self.room - self.margin, 1)), 1)

    @property
    def _text_room(self) -> int:
        """Return the cells of a row for text: the prefix of the line is before it, or as much space."""
        return self.room - min(self.margin, self.room - 1)

    def before(self, y: int) -> int:
        """Return how many cells of its line's text precede a row."""
        return self.rows()[y][1] * self._text_room

    def part(self, whole: Strip, y: int, blank: Strip) -> Strip:
        """Return the part of a line in a row; continuation rows are indented under the text."""
        before, room = self.before(y), self._text_room
        margin = self.room - room
        head = whole.crop(0, margin) if before == 0 else blank.crop(0, margin)
        return Strip.join([head, whole.crop(margin + before, margin + before + room)])
