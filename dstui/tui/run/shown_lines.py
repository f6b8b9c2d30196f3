"""The lines of a log as they were last read for the screen. One painting makes only as many as it can in a short while.

With a thousand ranks in one row, each row of a screen is made from a block of its own: all of them together take a third of a second.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final

from dstui.logs.log_blocks import EmptyLog, LogLine
from dstui.logs.log_rows import LogRows

SPELL = 0.012
"""Seconds for which one painting reads lines; the next one reads further."""
KEPT = 2000
"""Lines that are kept: more than a terminal has."""
LATE: Final = LogLine(None, "…")
"""Stands for a line that was not read yet."""


class ShownLines:
    """Lines of a log by number."""

    def __init__(self) -> None:
        self._lines: LogRows | EmptyLog = EmptyLog()
        self._known: OrderedDict[int, LogLine] = OrderedDict()
        self._until, self._read = inf, False
        self.late = False
        """True if a line was LATE in the last painting."""

    def begin(self, lines: LogRows | EmptyLog) -> None:
        """Show another log."""
        self._lines = lines
        self._known.clear()

    @contextmanager
    def painting(self) -> Iterator[None]:
        """Limit the time for reading lines within one painting. A nested one shares the limit."""
        if self._until < inf:
            yield
            return
        self._until, self._read, self.late = monotonic() + SPELL, False, False
        try:
            yield
        finally:
            self._until = inf

    def line(self, number: int) -> LogLine:
        """Return a line, or LATE."""
        if number in self._known:
            return self._known[number]
        if not self._lines.is_made(number):
            if self._read and monotonic() > self._until:
                self.late = True
                return LATE
            self._read = True  # at least one in each painting
        line = self._lines.line(number)
        if isinstance(self._lines, LogRows) and number < self._lines.start(self._lines.blocks[-1]):  # others may change
            self._known[number] = line
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return line
