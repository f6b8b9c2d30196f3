"""Logs as numbered lines, wherever they come from, and the search in them. No screen, so that it can be tested and timed alone."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from dstui.run.logfile import LogFile, finder

KEPT = 200_000
"""Lines of all ranks together that are kept in memory; each rank's own log on disk is shown whole."""

PROBLEM = r"\b(error|exception|traceback|fatal|failed|failure|abort(ed)?|killed|out of memory|segfault|timed? ?out|nan)\b"
"""What a line says that speaks of an error."""


class LogLine(NamedTuple):
    """A line, and the rank that wrote it; None where no rank did (the launcher, a notice of ours)."""

    rank: int | None
    text: str
    notice: bool = False


class Lines(Protocol):
    """Numbered lines; `first` is the lowest number that is still there."""

    first: int

    @property
    def end(self) -> int:
        """One more than the highest number."""

    def line(self, number: int) -> LogLine:
        """The line with this number."""


class Merged:
    """What all ranks wrote, in the order in which it was seen: the newest lines only."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self.first = 0

    @property
    def end(self) -> int:
        """One more than the highest number."""
        return self.first + len(self._lines)

    def add(self, line: LogLine) -> None:
        """A new line; where there are too many the oldest goes, and the numbers stay."""
        if len(self._lines) == self._lines.maxlen:
            self.first += 1
        self._lines.append(line)

    def line(self, number: int) -> LogLine:
        """The line with this number."""
        return self._lines[number - self.first]


class OneRank:
    """One rank's log, whole, from its file."""

    first = 0

    def __init__(self, rank: int | None, file: LogFile) -> None:
        self.rank, self.file = rank, file

    @property
    def end(self) -> int:
        """One more than the highest number."""
        return self.file.lines

    def line(self, number: int) -> LogLine:
        """The line with this number."""
        return LogLine(self.rank, self.file.line(number))


class Search:
    """The numbers of the lines that match, found in slices so that the screen stays alive in a log of gigabytes."""

    def __init__(self, pattern: str, lines: Lines, *, regex: bool = False) -> None:
        """`pattern` is plain text unless `regex`; case does not matter unless it has a capital letter."""
        flags = 0 if not regex and pattern != pattern.lower() else re.IGNORECASE
        self.pattern = pattern
        self.expression = re.compile(pattern if regex else re.escape(pattern), flags)
        self.lines = lines
        self._place = finder(pattern, regex=regex, ignore_case=bool(flags)) if isinstance(lines, OneRank) else None
        self.found = array("Q")
        self._next = lines.first

    @property
    def complete(self) -> bool:
        """Whether every line so far was looked at."""
        return self._next >= self.lines.end

    def advance(self, seconds: float = 0.02) -> bool:
        """Look at further lines for at most so long. True where a new one was found."""
        before, deadline = len(self.found), monotonic() + seconds
        self._next = max(self._next, self.lines.first)
        while self._next < self.lines.end:
            numbers, self._next = self._candidates()
            search = self.expression.search
            self.found.extend(n for n in numbers if search(self.lines.line(n).text))
            if monotonic() >= deadline:
                break
        gone = bisect_left(self.found, self.lines.first)
        if gone:
            del self.found[:gone]
        return len(self.found) != before

    def _candidates(self) -> tuple[Sequence[int], int]:
        """The next lines to look at, and the number after them; of a file those in whose bytes something was found, as fast as grep."""
        if self._place is not None and isinstance(self.lines, OneRank):
            return self.lines.file.grep(self._place, self._next, budget=1)
        stop = min(self._next + 256, self.lines.end)
        return range(self._next, stop), stop

    def neighbour(self, number: int, by: int) -> int | None:
        """The next match after a line (or before it), going round at the ends; None where nothing matches."""
        if not self.found:
            return None
        at = bisect_right(self.found, number) if by > 0 else bisect_left(self.found, number) - 1
        return self.found[at % len(self.found)]

    def place(self, number: int) -> int:
        """Which match a line is, counted from 1."""
        return bisect_right(self.found, number)
