"""When the lines of a job came: an index beside the logs, which the supervisor writes about once a second from their sizes alone.

    arrivals.index      HEADER, then a RECORD for each log that has grown since the last look: time (seconds since the epoch),
                        log (attempt * 65536 + rank; LAUNCHER is the launcher's), bytes that have come, bytes of the log by then

A line's time is that of the first record that covers its end: when somebody saw it, not when it was written. One file for all ranks is one
write a second, in the order of arrival; 1,024 ranks that write every second cost 24 KiB of it. Any part of it may be missing or torn.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dstui.base.regular_files import open_regular
from dstui.logs.log_folder import LogFolder

RECORD = struct.Struct("<dIIQ")
HEADER = b"dstui arrivals 1\n".ljust(RECORD.size)
LAUNCHER = 0
ATTEMPT = 1 << 16
"""The log of a rank is numbered ATTEMPT * attempt + rank."""
MAX_GROWTH = (1 << 32) - 1
"""Bytes that one record can tell of."""
CHUNK = 4096 * RECORD.size


class Record(NamedTuple):
    """At `time` the log had `size` bytes, `grown` of them new."""

    time: float
    log: int
    grown: int
    size: int


class ArrivalWriter:
    """The writer. It looks at sizes only, never at what a log holds."""

    def __init__(self, folder: LogFolder) -> None:
        self.folder = folder
        self._sizes: dict[int, int] = {}
        self._fd = -1

    def update(self, now: float, attempt: int) -> None:
        """Note what has grown. On a disk that is full, or not ours, nothing is noted, and the next look makes up for it."""
        with suppress(OSError):
            if self._fd < 0:
                self._open()
            sizes = self._grown(attempt)
            new = b"".join(RECORD.pack(*record) for log, size in sorted(sizes.items()) for record in self._records(now, log, size))
            if new:
                self._append(new)
                self._sizes |= sizes

    def _open(self) -> None:
        """Go on where the last supervisor ended; OSError where another version of dstui wrote the file."""
        fd = open_regular(self.folder.arrivals_file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        size = os.fstat(fd).st_size
        whole = size - size % RECORD.size
        if whole and os.pread(fd, len(HEADER), 0) != HEADER:
            os.close(fd)
            raise OSError
        os.ftruncate(fd, whole)
        self._fd = fd
        if not whole:
            self._append(HEADER)
        self._sizes = {record.log: record.size for record in Arrivals(self.folder.arrivals_file).forth()}

    def _grown(self, attempt: int) -> dict[int, int]:
        """Return the logs whose size has changed since the last call."""
        found = {}
        with suppress(OSError), os.scandir(self.folder.log(0, attempt).parent) as entries:
            for entry in entries:
                digits = entry.name.removeprefix("rank_").removesuffix(".log")
                if digits.isdecimal() and int(digits) < ATTEMPT:
                    found[ATTEMPT * attempt + int(digits)] = entry.stat().st_size
        with suppress(OSError):
            found[LAUNCHER] = self.folder.launcher_log.stat().st_size
        return {log: size for log, size in found.items() if size != self._sizes.get(log, 0)}

    def _records(self, now: float, log: int, size: int) -> Iterator[Record]:
        before = self._sizes.get(log, 0)
        at = before if before <= size else 0  # it was cut short, or replaced
        while at < size:
            grown = min(size - at, MAX_GROWTH)
            at += grown
            yield Record(now, log, grown, at)

    def _append(self, data: bytes) -> None:
        end = os.fstat(self._fd).st_size
        if os.write(self._fd, data) != len(data):
            os.ftruncate(self._fd, end)
            raise OSError


class Arrivals:
    """The reader: records in the order in which they were written, from either end. What is no index has none."""

    def __init__(self, path: Path) -> None:
        self._data = _Chunks(path)
        self.count = max(self._data.size // RECORD.size - 1, 0) if self._data.read(0, len(HEADER)) == HEADER else 0

    def forth(self) -> Iterator[Record]:
        """Yield the records from first to last."""
        at, end = RECORD.size, (self.count + 1) * RECORD.size
        while at < end:
            yield from self._unpack(at, min(at + CHUNK, end))
            at += CHUNK

    def back(self) -> Iterator[Record]:
        """Yield the records from last to first."""
        end = (self.count + 1) * RECORD.size
        while end > RECORD.size:
            start = max(end - CHUNK, RECORD.size)
            yield from reversed(list(self._unpack(start, end)))
            end = start

    def _unpack(self, start: int, end: int) -> Iterator[Record]:
        data = self._data.read(start, end)
        return map(Record._make, RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size]))


class _Chunks:
    """Bytes of a file by offset, opened for each read: nobody needs to close it. Nothing where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        with suppress(OSError):
            found = path.stat()
            self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0

    def read(self, start: int, end: int) -> bytes:
        if not self.size:
            return b""
        try:
            fd = open_regular(self.path)
        except OSError:
            return b""
        try:
            return os.pread(fd, end - start, start)
        finally:
            os.close(fd)
