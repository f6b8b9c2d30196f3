"""Follow one growing file line by line with bounded memory, for events and metrics.

To show a log, use `LogFile`, which reads any part of it.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from stat import S_ISREG

from dstui.base.regular_files import open_regular
from dstui.logs.decode import LONGEST, decode, decode_lines, overdrawn
from dstui.logs.grep import LineSearch, keep_matching


def allow_files(count: int) -> None:
    """Raise this process's limit of open files as far as the system permits: the usual 1,024 are few for a job of a thousand ranks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Tail:
    """Yields complete lines of a file as they arrive. The file may not exist yet, be truncated or be replaced."""

    def __init__(self, path: Path, backlog: int | None = None, *, every_state: bool = False) -> None:
        """Prepare to follow a file, from `backlog` bytes before its end, or from its start if that is None.

        `every_state`: return each state of a progress bar as a line.
        """
        self.path = path
        self.modified: float | None = None
        """The time of the last write of the file, seconds since the epoch."""
        self.taken = 0
        """Bytes taken by the last read."""
        self.bars: dict[int, str] = {}
        """The progress bars that lines of the last read have overwritten, by the line's position in it."""
        self._backlog, self._every_state = backlog, every_state
        self._fd = -1
        self._inode = -1
        self._at = 0
        self._pending = b""
        self._dropped = 0

    @property
    def live(self) -> str:
        """The incomplete last line: a progress bar, a prompt."""
        return decode(self._pending)

    @property
    def is_bar(self) -> bool:
        """Return whether the incomplete line is redrawn in place."""
        return b"\r" in self._pending

    def read(self, budget: int, wanted: LineSearch | None = None) -> list[str]:
        """Return the lines of at most `budget` further bytes, sanitised. `wanted`: keep only lines that match."""
        self.taken, self.bars = 0, {}
        if not self._open():
            return []
        data = os.pread(self._fd, budget, self._at)
        self.taken = len(data)
        self._at += self.taken
        if self._every_state:
            data = data.replace(b"\r", b"\n")
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._keep(self._pending + rest)
            return []
        whole, dropped = self._pending + whole, self._dropped
        self._pending, self._dropped = b"", 0
        self._keep(rest)
        if wanted is not None:
            whole = keep_matching(whole, wanted)
            if not whole:
                return []
        shown = decode_lines(whole)
        if dropped and wanted is None:
            shown[0] = decode(first := whole.partition(b"\n")[0], len(first) + dropped)
        if b"\r" in whole:
            self.bars = {place: bar for place, raw in enumerate(whole.split(b"\n")) if b"\r" in raw and (bar := overdrawn(raw))}
        return shown

    def skip(self, count: int) -> None:
        """Skip about `count` bytes, up to the beginning of a line."""
        self._at, self._pending, self._dropped = self._line_start(self._at + count), b"", 0

    def flush(self) -> list[str]:
        """Return the incomplete line that is left at the end."""
        text, self._pending = self.live, b""
        return [text] if text else []

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        """Open the file, or its successor of the same name. Return whether there are unread bytes."""
        try:
            found = self.path.stat()
            if not S_ISREG(found.st_mode):
                return False
            if found.st_ino != self._inode:
                self.close()
                self._fd = open_regular(self.path)
                self._inode = found.st_ino
                self._at, self._pending = 0, b""
                if self._backlog is not None and found.st_size > self._backlog:
                    self._at = self._line_start(found.st_size - self._backlog)
        except OSError:
            return False
        self.modified = found.st_mtime
        if found.st_size < self._at:  # the file was truncated
            self._at, self._pending = 0, b""
        return found.st_size > self._at

    def _line_start(self, offset: int) -> int:
        newline = os.pread(self._fd, LONGEST, offset).find(b"\n")
        return offset + newline + 1 if newline >= 0 else offset

    def _keep(self, rest: bytes) -> None:
        """Keep an incomplete line: the latest states of a progress bar, the beginning of other lines."""
        last = rest.rfind(b"\r")
        if last > 0:
            rest = rest[max(rest.rfind(b"\r", 0, last), 0) :]
        self._dropped += max(len(rest) - LONGEST, 0)
        self._pending = rest[:LONGEST]
