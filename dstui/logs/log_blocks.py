"""Stretches of a log as rows: which bytes of which logs a block is made of, and which of its rows pass the filter."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from math import isfinite, isnan, nan
from typing import NamedTuple

from dstui.logs.colours import Run
from dstui.logs.dedup import Batch, DedupRows
from dstui.logs.levels import ALL, Levels
from dstui.logs.line_query import Texts
from dstui.logs.timeline import Part, Slice


class LogLine(NamedTuple):
    """A row: the line, the rank that wrote it (None where no rank did), when it was seen, and how many logs said the same."""

    rank: int | None
    text: str
    notice: bool = False
    time: float = nan
    repeats: int = 1
    runs: tuple[Run, ...] = ()
    """The pieces of the line with the colours that its script used; empty if it used none."""


class EmptyLog:
    """The log of no job."""

    first = end = lines = hidden = 0
    complete = True
    left_out = False
    since = nan
    wanted = 0

    def line(self, number: int) -> LogLine:
        """Raise IndexError: there are no lines."""
        raise IndexError(number)

    def is_made(self, _number: int) -> bool:
        """Return True: there is nothing to make."""
        return True


class LogBlock:
    """A stretch of the log: which bytes of which logs, in what order, and how many rows that makes."""

    def __init__(self, *, dedup: bool) -> None:
        self.dedup = dedup
        self.first = self.rows = self.lines = self.bytes = self.hidden = 0
        self.since = nan
        """The time of the first line that has one; NaN where none has."""
        self._times = array("d")
        self._counts = array("I")
        self._logs = array("H")
        self._starts = array("Q")
        self._sizes = array("I")

    def add(self, chunk: Slice) -> None:
        """Add the next slice."""
        moment = chunk.time if chunk.known else nan
        self._times.append(moment)
        if isnan(self.since) and isfinite(moment):
            self.since = moment
        self._counts.append(len(chunk.parts))
        for log, start, end in chunk.parts:
            self._logs.append(log)
            self._starts.append(start)
            self._sizes.append(end - start)
            self.bytes += end - start

    @property
    def memory(self) -> int:
        """The bytes of memory that the block takes."""
        return 300 + 12 * len(self._times) + 14 * len(self._logs)

    def chunks(self) -> Iterator[tuple[float, list[Part]]]:
        """Yield times and parts in the order in which they were added."""
        at = 0
        for moment, count in zip(self._times, self._counts, strict=True):
            yield moment, [Part(self._logs[n], self._starts[n], self._starts[n] + self._sizes[n]) for n in range(at, at + count)]
            at += count


class BlockRows:
    """The rows of a block, and which of them pass the filter."""

    def __init__(self, *, dedup: bool, least: int, only: Texts | None, cutoff: float = nan, shape: bool = False) -> None:
        self.rows = DedupRows(dedup=dedup, shape=shape)
        self.picked: list[int] = []
        self._levels, self._only, self._cutoff = Levels(least), only, cutoff
        self._shows_all = least == ALL and only is None and isnan(cutoff)
        self._filtered = 0

    def add(self, moment: float, batches: list[Batch]) -> None:
        """Add the next lines."""
        self.rows.add(moment, batches)
        rows, new = self.rows, range(self._filtered, len(self.rows))
        found: Iterable[int] = new
        if self._levels.least != ALL:
            # keep every row, since the lines of a traceback belong together
            found = [new[n] for n in self._levels.select(rows.log[new.start :], rows.raw[new.start :])]
        if not isnan(self._cutoff):
            found = [n for n in found if rows.time[n] >= self._cutoff]
        if self._only is not None:
            found = [*found]
            found = [found[n] for n in self._only.matching([rows.raw[n] for n in found])]
        self.picked += found
        self._filtered = len(rows)

    @property
    def hidden(self) -> int:
        """The number of lines that do not pass."""
        if self._shows_all:
            return 0
        return self.rows.lines - sum(self.rows.log_mask[n].bit_count() for n in self.picked)

    def finish(self, *, narrow: bool) -> None:
        """Free what only further lines would need; if `narrow`, also the rows that do not pass. No lines can be added afterwards."""
        rows = self.rows
        rows.finish()
        if not narrow:
            return
        rows.raw, rows.time = [rows.raw[n] for n in self.picked], [rows.time[n] for n in self.picked]
        rows.log, rows.log_mask = [rows.log[n] for n in self.picked], [rows.log_mask[n] for n in self.picked]
        self.picked = list(range(len(rows)))


def bits(number: int) -> Iterator[int]:
    """Yield the set bits from the highest."""
    while number:
        highest = number.bit_length() - 1
        yield highest
        number ^= 1 << highest
