"""All logs of a job in order of arrival: existing lines from either end, then new lines.

The order is that of the arrivals index. Logs that are not in it are cut into equal shares side by side, with unknown times. Only the index
is read here: a slice names ranges of bytes, so that a job of any size opens at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import groupby
from math import ceil
from typing import NamedTuple

from dstui.base.text import sanitise
from dstui.logs.arrival_index import ATTEMPT, LAUNCHER, Arrivals, Record
from dstui.logs.decode import is_unadorned
from dstui.logs.grep import LineSearch, keep_matching
from dstui.logs.log_file import LogFile
from dstui.logs.log_folder import LogFolder
from dstui.logs.tail import allow_files

SHARE = 16 * 1024
"""Of several logs without times, bytes of the longest one in each turn."""
LARGEST = 256 * 1024
"""Bytes in one slice."""
NOTICES = -1
"""The number of the source with dstui's own messages about a job."""
ASIDE = 256
ROUNDED = 0.001
"""Seconds by which the time of an event may have been rounded down: it is written in milliseconds, and the lines before it are not."""


class Part(NamedTuple):
    """The lines that end in these bytes of a log; `log` is the index of the source in the timeline."""

    log: int
    start: int
    end: int


class Slice(NamedTuple):
    """The lines of one look. `known`: `time` is a real time, not only a position in the order."""

    time: float
    known: bool
    parts: list[Part]

    @property
    def size(self) -> int:
        """The number of bytes in it."""
        return sum(part.end - part.start for part in self.parts)


class Notices:
    """dstui's messages about a job as lines with times: from events.jsonl, and from `add`. Read like a log."""

    def __init__(self, folder: LogFolder | None) -> None:
        self._folder = folder
        self._at = 0
        self._lines: list[bytes] = []
        self.times: list[float] = []
        self.size = self.ended = 0
        self.modified = 0.0

    def add(self, time: float, text: str) -> None:
        """Add a line."""
        self._lines.append(text.encode())
        self.times.append(time)
        self.size = self.ended = len(self._lines)

    def poll(self) -> bool:
        """Read the events that were written since the last call."""
        for size, event in self._folder.read_events(self._at) if self._folder is not None else ():
            self._at += size
            text = _sentence(event)
            if text and event.get("t") is not None:
                self.add(event["t"], sanitise(text))
        return True

    def text(self, start: int, end: int) -> bytes:
        """Return the lines of a range of numbers, each with a newline."""
        return b"".join(line + b"\n" for line in self._lines[start:end])

    def read(self, start: int, end: int) -> list[bytes]:
        """Return the lines of a range of numbers, without newlines."""
        return self._lines[start:end]


def _sentence(event: dict[str, object]) -> str:
    code = f", exit status {event['exit_code']}" if event.get("exit_code") is not None else ""
    sentences = {
        "notice": f"{event.get('text')}",
        "host": f"{event.get('text')}",
        "rank": f"rank {event.get('rank')} on {event.get('host')}: {event.get('state')}{code}",
        "exit": f"the job has {event.get('state')}{code}",
    }
    return sentences.get(str(event.get("event")), "")


class Source(NamedTuple):
    """One log. `rank` is None for the launcher and for dstui's messages."""

    number: int
    rank: int | None
    file: LogFile | Notices


class Timeline:
    """The logs of a job, or of some ranks or one attempt of it."""

    def __init__(self, folder: LogFolder, ranks: Collection[int] | None = None, attempt: int | None = None) -> None:
        self.folder, self.attempt = folder, attempt
        self.ranks = None if ranks is None else frozenset(ranks)
        self.job = folder.read_span()
        self.sources: list[Source] = []
        self.replaced = False
        """True if a log was replaced: the timeline must then be made anew."""
        self._index: dict[int, int] = {}
        self._arrivals = Arrivals(folder.arrivals_file)
        self.notices = Notices(folder if ranks is None else None)
        self._add(NOTICES, None, self.notices)
        if ranks is None:
            self._add(LAUNCHER, None, LogFile(folder.launcher_log))
        self.find()
        self._poll()
        self._final = self.job.final
        self.taken = [self._end(source) for source in self.sources]
        """The part of each source that was yielded, or belongs to `back` and `forth`."""
        self._there = tuple(self.taken)

    # Finding logs

    def find(self) -> None:
        """Add the logs that have appeared since the last call."""
        attempts = [1]
        with suppress(OSError):
            attempts += sorted(int(name) for name in os.listdir(self.folder.attempt(2).parent) if name.isdecimal())  # noqa: PTH208 - names only
        for attempt in attempts if self.attempt is None else [self.attempt]:
            logs = self.folder.log(0, attempt).parent
            with suppress(OSError):
                names = (name[5:-4] for name in os.listdir(logs) if name.startswith("rank_") and name.endswith(".log"))  # noqa: PTH208
                for rank in sorted(int(name) for name in names if name.isdecimal()):
                    number = ATTEMPT * attempt + rank
                    if rank < ATTEMPT and number not in self._index and (self.ranks is None or rank in self.ranks):
                        self._add(number, rank, LogFile(self.folder.log(rank, attempt)))
        allow_files(ASIDE + 2 * len(self.sources))

    def _add(self, number: int, rank: int | None, file: LogFile | Notices) -> None:
        self._index[number] = len(self.sources)
        self.sources.append(Source(number, rank, file))

    def _poll(self) -> None:
        for source in self.sources:
            self.replaced |= not source.file.poll()

    def _end(self, source: Source) -> int:
        """Return how far a source is readable: after the job's end, including a last line without a newline."""
        file = source.file
        return file.size + 1 if self._final and file.size > file.ended else file.ended

    # Existing lines

    def back(self) -> Iterator[Slice]:
        """Yield the slices of what the logs contained when this timeline was created, newest first."""
        return merge(self._notices_back(), self._recorded_back(), key=lambda part_slice: -_moment(part_slice))

    def forth(self) -> Iterator[Slice]:
        """Yield the same slices as `back`, oldest first."""
        return merge(reversed(list(self._notices_back())), self._recorded_forth(), key=_moment)

    def _notices_back(self) -> Iterator[Slice]:
        times = self.notices.times
        return (Slice(times[n], True, [Part(0, n, n + 1)]) for n in reversed(range(self._there[0])))

    def _recorded_back(self) -> Iterator[Slice]:
        """Yield slices of the logs from their ends, by the arrival index: a record says that a log had `size` bytes, `grown` of them new.

        `left` is the number of bytes of each log still to yield. It only shrinks, so every byte is yielded once, whatever the records say
        (they may overlap, leave gaps, or exceed the log). Bytes after a log's newest record were written later (`late`, with the file's
        time). Bytes before the oldest record arrived before the supervisor looked: they have a position but no time.
        """
        left = list(self._there)
        left[0] = 0  # messages have their own times: see _notices_back
        met: set[int] = set()
        for time, records in groupby(self._arrivals.back(), key=lambda record: record.time):
            late, parts = [], []
            for record in records:
                log = self._index.get(record.log)
                if log is None:
                    continue
                end = min(record.size, left[log])
                if end < left[log] and log not in met:
                    late.append(Part(log, end, left[log]))
                    left[log] = end
                met.add(log)
                start = max(min(record.size - record.grown, end), 0)
                if start < left[log]:
                    parts.append(Part(log, start, left[log]))
                    left[log] = start
            for part_slice in reversed(self._late(late)):
                yield from cut(part_slice, back=True)
            yield from cut(Slice(time, True, parts[::-1]), back=True)
        yield from reversed_shares(left, *self._span())

    def _recorded_forth(self) -> Iterator[Slice]:
        """Yield the slices from their beginnings: logs without records, then recorded ones, then late ones."""
        taken = [0] * len(self._there)
        noted = {self._index.get(record.log) for record in self._arrivals.forth()}
        unknown = [0 if log in noted or not log else end for log, end in enumerate(self._there)]
        yield from shares(unknown, *self._span())
        for time, records in groupby(self._arrivals.forth(), key=lambda record: record.time):
            parts = [part for record in records if (part := self._next(record, taken))]
            yield from cut(Slice(time, True, parts))
        late = [Part(log, taken[log], end) for log, end in enumerate(self._there) if log in noted and log and taken[log] < end]
        for part_slice in self._late(late):
            yield from cut(part_slice)

    def _next(self, record: Record, taken: list[int]) -> Part | None:
        log = self._index.get(record.log)
        if log is None or min(record.size, self._there[log]) <= taken[log]:
            return None
        start, taken[log] = taken[log], min(record.size, self._there[log])
        return Part(log, start, taken[log])

    def _late(self, parts: list[Part]) -> list[Slice]:
        """Return slices of what was written after a log's last record, at the time of the file's last write."""
        last = {part: self.sources[part.log].file.modified for part in parts}
        seconds = groupby(sorted(parts, key=lambda part: (int(last[part]), part.log)), key=lambda part: int(last[part]))
        return [Slice(max(last[part] for part in same), True, same) for same in (list(group) for _, group in seconds)]

    def _span(self) -> tuple[float, float]:
        """Return when the job began and when its logs were last written: lines without a time are in between."""
        latest = max((source.file.modified for source in self.sources), default=0.0)
        return min(self.job.started or 0.0, latest), latest

    # New lines

    def poll(self, now: float) -> Iterator[Slice]:
        """Yield the slices written since the last poll. `now`: seconds since the epoch."""
        self._poll()
        parts = []
        self.taken += [0] * (len(self.sources) - len(self.taken))
        for log, source in enumerate(self.sources):
            end = source.file.ended
            if end > self.taken[log]:
                parts.append(Part(log, self.taken[log], end))
                self.taken[log] = end
        parts.sort(key=lambda part: part.log == 0)  # the message that a rank has ended comes after its last lines
        return cut(Slice(now, True, parts))

    def finish(self, now: float) -> Iterator[Slice]:
        """Yield the last slices after the job's end; incomplete lines count."""
        self._final = True
        parts = [Part(log, self.taken[log], self._end(source)) for log, source in enumerate(self.sources)]
        self.taken = [part.end for part in parts]
        return cut(Slice(now, True, [part for part in parts if part.start < part.end]))

    @property
    def ended(self) -> float:
        """The end of the job; if unknown, the last write to its logs."""
        return self.job.ended or max(source.file.modified for source in self.sources)

    def read(self, parts: Iterable[Part], wanted: LineSearch | None = None) -> Iterator[tuple[int, int | None, list[bytes]]]:
        """Yield (source index, rank, lines) for some parts, restricted to `wanted` lines where the text decides."""
        for log, start, end in parts:
            _, rank, file = self.sources[log]
            if wanted is None:
                yield log, rank, file.read(start, end)
                continue
            data = file.text(start, end)
            data = keep_matching(data, wanted) if is_unadorned(data) else data.removesuffix(b"\n")
            if data:
                yield log, rank, data.split(b"\n")

    def text(self, parts: Iterable[Part]) -> bytes:
        """Return the lines of some parts in order, each with its newline."""
        return b"".join([self.sources[log].file.text(start, end) for log, start, end in parts])

    def close(self) -> None:
        """Close all files."""
        for source in self.sources:
            if isinstance(source.file, LogFile):
                source.file.close()


def _moment(part_slice: Slice) -> float:
    """Return the time by which a slice is ordered."""
    return part_slice.time + (ROUNDED if part_slice.parts[0].log == 0 else 0.0)


def shares(ends: list[int], began: float, ended: float) -> Iterator[Slice]:
    """Yield slices of logs without arrival times side by side."""
    return _shares(ends, began, ended, range(_count(ends)))


def reversed_shares(ends: list[int], began: float, ended: float) -> Iterator[Slice]:
    """Yield the slices of `shares` in reverse order."""
    return _shares(ends, began, ended, range(_count(ends))[::-1])


def _count(ends: list[int]) -> int:
    alone = sum(map(bool, ends)) == 1
    return ceil(max(ends, default=0) / (LARGEST if alone else SHARE))


def _shares(ends: list[int], began: float, ended: float, numbers: range) -> Iterator[Slice]:
    count = len(numbers)
    for n in numbers:
        parts = [Part(log, end * n // count, end * (n + 1) // count) for log, end in enumerate(ends)]
        yield Slice(began + (ended - began) * (n + 1) / count, False, [part for part in parts if part.start < part.end])


def cut(part_slice: Slice, *, back: bool = False, most: int = LARGEST) -> Iterator[Slice]:
    """Split a slice into parts of at most `most` bytes, which are quick to search."""
    count = ceil(part_slice.size / most)
    if count <= 1:
        return iter([part_slice] if part_slice.parts else [])
    order = range(count)[::-1] if back else range(count)
    return (part_slice._replace(parts=[p for part in part_slice.parts if (p := _share(part, n, count))]) for n in order)


def _share(part: Part, n: int, count: int) -> Part | None:
    size = part.end - part.start
    found = Part(part.log, part.start + size * n // count, part.start + size * (n + 1) // count)
    return found if found.start < found.end else None
