"""Merge the lines of several ranks into rows in order of arrival. A line that several ranks printed becomes one row.

Within one look at the logs, the order of lines from different ranks is unknown: they are merged side by side, in equal shares. A line that
several ranks have waits until all of them have reached it, so that it becomes one row whatever other lines are in between. The lines of
each rank always stay in their order.

Lines are the same if they differ only in the rank's own number and in a time stamp. A line costs about 1.5 µs.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import NamedTuple

from dstui.logs.levels import shapes_of

WINDOW = 5.0
"""Seconds after a row in which further ranks may join it. Lines without a known time may always join."""
SHARES = 16
"""The most shares into which the lines of a poll are split: with hundreds of ranks, more would cost time without visible effect."""
STAMP = re.compile(rb":\d\d:\d\d(?:[.,]\d+)?")
"""Minutes and seconds. A pattern that begins with a literal character is searched ten times as fast."""
DEVICE = re.compile(rb"cuda:\d+")
DRAWN_OVER = re.compile(rb"^.*\r(?=[^\r\n]*[^\s\r])|\r+$", re.MULTILINE)
"""Text that a progress bar has overwritten."""


class Batch(NamedTuple):
    """The lines that one log has got since the last poll, with its number (a bit in `DedupRows.log_mask`) and its rank, if it has one."""

    log: int
    rank: int | None
    lines: list[bytes]


class DedupRows:
    """Rows of lines: the line of the first rank, its log, the logs that have it too (a bit each), and when it arrived (epoch, s)."""

    def __init__(self, *, dedup: bool, shape: bool = False) -> None:
        """Prepare for lines. `shape`: lines that differ only in numbers within a step form one row too (line_shapes.py)."""
        self.dedup, self.shape = dedup, dedup and shape
        self.members: list[dict[int, bytes]] = []
        """For each row by shape, the line of each log in it."""
        self.raw: list[bytes] = []
        self.log: list[int] = []
        self.log_mask: list[int] = []
        self.time: list[float] = []
        self.lines = 0
        """The number of lines in the rows."""
        self._latest: dict[bytes, int] = {}
        self._last: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.raw)

    def add(self, time: float, batches: Sequence[Batch]) -> None:
        """Add the lines that came since the last poll, read at `time` (seconds since the epoch)."""
        self.lines += sum(len(lines) for _, _, lines in batches)
        if self.dedup:
            sources = _sources_by_shape(batches, self._last) if self.shape else _sources(batches, self._last)
            _Batch(self, time, sources, self._latest).merge()
            self._last |= {log: source.last for source in sources for log in source.logs}
            return
        for log, _, lines in batches:
            self.raw += lines
            self.log += [log] * len(lines)
            self.log_mask += [1 << log] * len(lines)
            self.time += [time] * len(lines)

    def finish(self) -> None:
        """Free what finds equal lines among further ones, which is more than half of the memory. No lines can be added afterwards."""
        self._latest, self._last = {}, {}

    def join(self, number: int, source: _Source, at: int) -> None:
        """Count a line of a source among those of a row."""
        self.log_mask[number] |= source.log_mask
        if self.shape:
            self.members[number][source.logs[0]] = source.lines[at]


class _Source:
    """Logs with identical text, treated as one."""

    def __init__(self, logs: list[int], lines: list[bytes], keys: list[bytes], last: int) -> None:
        self.logs, self.lines, self.keys, self.last = logs, lines, keys, last
        self.at = 0
        self.waits = False
        self.log_mask = sum(1 << log for log in logs)


class _Batch:
    """The lines of one poll while they become rows."""

    def __init__(self, rows: DedupRows, time: float, sources: list[_Source], latest: dict[bytes, int]) -> None:
        self.rows, self.time, self.sources, self.latest = rows, time, sources, latest
        self.left = Counter[bytes]()
        """The number of times that each line is still to come."""
        for source in sources:
            self.left.update(source.keys)
        self.waiting: dict[bytes, list[_Source]] = {}
        """Sources that have reached a line which others have not reached yet."""
        self.ready: deque[bytes] = deque()
        """Lines that all their sources have reached."""
        self.share = 1.0
        """The share of its lines that each source may have emitted so far."""

    def merge(self) -> None:
        """Merge all lines, keeping each rank's order.

        In each round every source yields up to the same share of its lines, since lines between two polls have no other order. At the end
        only sources that wait for each other crosswise are left (A has lines x, y and B has y, x): the first one then continues alone.
        """
        shares = min(max((len(source.keys) for source in self.sources), default=0), SHARES)
        for share in range(1, shares + 1):
            self.share = share / shares
            for source in self.sources:
                if not source.waits:
                    self._advance(source)
            while self.ready:
                self._take(self.ready.popleft())
        for source in self.sources:
            while source.at < len(source.keys):
                self._take(self.ready.popleft() if self.ready else source.keys[source.at])

    def _advance(self, source: _Source) -> None:
        """Emit a source's lines up to its share, or up to a line that other sources have not reached yet.

        For each line, by its key, there are three cases:
        1. There is a row with this key after the source's last row (a rank's lines stay in their order) and not older than WINDOW: the line
           joins that row.
        2. No other source has the line still to come (`left` counts this source too): it becomes a row of its own.
        3. Others still have it to come: the source waits. When all that have it wait there, `merge` makes it one row (`_take`), and they
           continue.

        With each emitted line, fewer lines are left of its key, and the sources that wait at that key may then be all that have it. This
        runs once for each line of every log: names are local, and a line costs about 1 µs.
        """
        rows, left, waiting, latest = self.rows, self.left, self.waiting, self.latest
        keys, at, last, since = source.keys, source.at, source.last, self.time - WINDOW
        end = ceil(len(keys) * self.share)
        while at < end:
            key = keys[at]
            number = latest.get(key, -1)
            if number > last and not rows.time[number] < since:
                rows.join(number, source, at)
                last = number
            elif left[key] == 1:
                last = self._row(source, at)
            else:
                there = waiting.setdefault(key, [])
                there.append(source)
                source.waits = True
                if len(there) == left[key]:
                    self.ready.append(key)
                break
            at += 1
            left[key] -= 1
            if key in waiting and len(waiting[key]) == left[key]:
                self.ready.append(key)
        source.at, source.last = at, last

    def _take(self, key: bytes) -> None:
        """Take a line from all sources that have reached it."""
        sources = self.waiting.pop(key, ())
        if sources:
            first = min(sources, key=lambda source: source.logs[0])
            number = self._row(first, first.at)
            self.left[key] -= len(sources)
        for source in sources:
            self.rows.join(number, source, source.at)
            source.last = number
            source.at += 1
            source.waits = False
        for source in sources:
            self._advance(source)

    def _row(self, source: _Source, at: int) -> int:
        rows = self.rows
        rows.raw.append(source.lines[at])
        rows.log.append(source.logs[0])
        rows.log_mask.append(source.log_mask)
        rows.time.append(self.time)
        if rows.shape:
            rows.members.append({source.logs[0]: source.lines[at]})
        number = self.latest[source.keys[at]] = len(rows.raw) - 1
        return number


def _sources(batches: Sequence[Batch], last: dict[int, int]) -> list[_Source]:
    """Group logs with identical text into one source. `last`: the last row of each log."""
    texts: dict[bytes, list[Batch]] = {}
    for each in batches:
        if each.lines:
            texts.setdefault(key_of(b"\n".join(each.lines), each.rank), []).append(each)
    return [
        _Source([each.log for each in same], same[0].lines, text.split(b"\n"), max(last.get(each.log, -1) for each in same))
        for text, same in texts.items()
    ]


def _sources_by_shape(batches: Sequence[Batch], last: dict[int, int]) -> list[_Source]:
    """Return a source for each log: lines of the same shape may differ in numbers."""
    return [
        _Source([each.log], each.lines, shapes_of(key_of(b"\n".join(each.lines), each.rank)).split(b"\n"), last.get(each.log, -1))
        for each in batches
        if each.lines
    ]


@cache
def _named(rank: int) -> re.Pattern[bytes]:
    """Return an expression for a mention of a rank by its number."""
    return re.compile(rb"ank[ \t]*[:=#]?[ \t]*%d\b" % rank)


def key_of(text: bytes, rank: int | None) -> bytes:
    """Return the part of a text that must be equal in lines of one row."""
    if b"\r" in text:
        text = DRAWN_OVER.sub(b"", text)
    if b":" in text:
        text = STAMP.sub(b"", text)
    if b"cuda:" in text:
        text = DEVICE.sub(b"", text)
    if rank is None:
        return text
    if b"ank" in text:
        text = _named(rank).sub(b"", text)
    for name in (b"\n%d:" % rank, b"\n[%d]" % rank):  # labels of mpirun and srun
        if name[1:] in text:
            text = (b"\n" + text).replace(name, b"\n")[1:]
    return text
