"""An index of when the lines of a job arrived. The supervisor writes it about once a second from the sizes of the logs.

arrivals.index is a HEADER, then a RECORD for each log that has grown since the last look: time (seconds since the epoch), log (attempt *
65536 + rank; LAUNCHER is the launcher's), bytes that have arrived, size of the log by then.

The time of a line is that of the first record that covers its end: when the supervisor saw it, not when it was written. One file for all
ranks means one write a second, in order of arrival; 1,024 ranks that write every second cost 24 KiB of it. Any part of the index may be
missing or damaged.
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
"""The log of a rank has the number ATTEMPT * attempt + rank."""
MAX_GROWTH = (1 << 32) - 1
"""The largest growth in bytes that one record can hold."""
CHUNK = 4096 * RECORD.size


class Record(NamedTuple):
    """At `time` the log had `size` bytes, of which `grown` were new."""

    time: float
    log: int
    grown: int
    size: int


class ArrivalWriter:
    """Writes the index. It looks only at sizes, never at the content of a log."""

    def __init__(self, folder: LogFolder) -> None:
        self.folder = folder
        self._sizes: dict[int, int] = {}
        self._fd = -1

    def update(self, now: float, attempt: int) -> None:
        """Record what has grown. If the disk is full or not writable, nothing is recorded, and the next call catches up."""
        with suppress(OSError):
            if self._fd < 0:
                self._open()
            sizes = self._grown(attempt)
            new = b"".join(RECORD.pack(*record) for log, size in sorted(sizes.items()) for record in self._records(now, log, size))
            if new:
                self._append(new)
                self._sizes |= sizes

    def _open(self) -> None:
        """Continue where the last supervisor ended. Raises OSError if another version of dstui wrote the file."""
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
        at = before if before <= size else 0  # truncated or replaced
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
    """Reads the records in the order in which they were written, from either end. A file that is not an index has none."""

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
    """Bytes of a file by offset. The file is opened for each read, so nobody must close it. An unreadable file is empty."""

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
