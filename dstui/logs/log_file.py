"""A log of any size, readable from any offset: there is no index, so 10 GB open at their end at once and take no memory.

A line belongs to the bytes in which it ends. If a file is cut into ranges anywhere, each line is in exactly one of them. The file may grow,
be truncated, be replaced or not exist yet.
"""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path
from typing import ClassVar

from dstui.base.regular_files import open_regular
from dstui.logs.decode import LONGEST, decode

CHUNK = 64 * 1024
ASIDE = 64
"""File descriptors, of half of the process's limit, that are not used for logs."""
FARTHEST = 16 << 20
"""Bytes before a range that are searched for the beginning of its first line."""


class LogFile:
    """One log. `size`: its size at the last look; `ended`: how many of its bytes are complete lines."""

    _held: ClassVar[int] = 0
    """The number of files that are open."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.size = self.ended = 0
        self.modified = 0.0
        """Time of the last write, seconds since the epoch."""
        self._fd = -1
        self._inode = -1

    def poll(self) -> bool:
        """Look again. Return False if it is another file now: replaced or truncated."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - a thousand logs are checked twelve times a second, and Path.stat costs twice as much
        except OSError:
            return True  # not there yet, or gone: what was read stays readable
        if (found.st_size == self.size and found.st_ino == self._inode) or not stat.S_ISREG(found.st_mode):
            return True
        if self._inode < 0:
            self._inode = found.st_ino
        elif found.st_ino != self._inode or found.st_size < self.size:
            return False
        before, self.size, self.modified = self.size, found.st_size, found.st_mtime
        newline = self._newline_before(self.size, before)
        self.ended = newline + 1 if newline >= 0 else self.ended
        return True

    def text(self, start: int, end: int) -> bytes:
        """Return the lines that end in these bytes, each with its newline.

        If `end` is beyond the file's end, text after the last newline is a line too.
        """
        before = self.pread(start - 1, start) if start else b"\n"
        stop = end if end > self.size else self._newline_before(end, start) + 1
        if not before or not stop:
            return b""
        # The bytes are returned as read: a copy would take four times as long as reading.
        data = self.pread(start if before == b"\n" else self._beginning(start), stop)
        return data if data[-1:] in (b"", b"\n") else data + b"\n"

    def read(self, start: int, end: int) -> list[bytes]:
        """Return the lines that end in these bytes, without newlines; see `text`."""
        return self.text(start, end).split(b"\n")[:-1]

    def pread(self, start: int, end: int) -> bytes:
        """Return the bytes of a range, fewer if the file ends earlier."""
        if self._inode < 0:
            return b""
        try:
            fd = self._fd if self._fd >= 0 else self._open()
        except OSError:
            return b""
        try:
            return os.pread(fd, end - start, start)
        except OSError:
            return b""
        finally:
            if fd != self._fd:
                os.close(fd)

    def _open(self) -> int:
        """Open the file, and keep it open if there are enough descriptors. Raises OSError if it cannot be read."""
        fd = open_regular(self.path)
        if LogFile._held < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - ASIDE:
            self._fd = fd
            LogFile._held += 1
        return fd

    def unfinished(self) -> str:
        """Return the incomplete last line (a progress bar, a prompt); "" if there is none."""
        return (
            decode(self.pread(self.ended, self.size))
            if self.size - self.ended < LONGEST
            else decode(self.pread(self.size - LONGEST, self.size))
        )

    def tail(self, count: int) -> list[str]:
        """Return the last `count` lines within the last 1 MiB."""
        self.poll()
        start, data = self.size, b""
        while start > 0 and data.count(b"\n") <= count and len(data) < 16 * CHUNK:
            step = min(CHUNK, start)
            start -= step
            data = self.pread(start, start + step) + data
        lines = data.removesuffix(b"\n").split(b"\n") if data else []
        return [decode(line) for line in lines[max(len(lines) - count, 0) :]]

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            LogFile._held -= 1

    def _beginning(self, offset: int) -> int:
        """Return where the line at `offset` begins. A longer line is cut to its last FARTHEST bytes."""
        least = max(offset - FARTHEST, 0)
        newline = self._newline_before(offset, least)
        return newline + 1 if newline >= 0 else least

    def _newline_before(self, offset: int, least: int) -> int:
        """Return the offset of the last newline from `least` to before `offset`; -1 if there is none."""
        step = 4096
        while offset > least:
            start = max(offset - step, least)
            newline = self.pread(start, offset).rfind(b"\n")
            if newline >= 0:
                return start + newline
            offset, step = start, CHUNK
        return -1
