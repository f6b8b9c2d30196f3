"""Whether anybody has read a file since it was written: by the time of its last access, where the file system keeps that.

The ds_config.json of a job that no rank has read is one by which nobody has trained, however well the job ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

UNREAD, UNKNOWN = 0, 10**9
"""Times of last access (ns since the epoch) that no real reader leaves behind: one that a read changes, and one that stays where
reading leaves no trace (a disk mounted with noatime)."""


def watch(path: Path) -> None:
    """From now on `was_read` can tell, as far as the file system does."""
    with suppress(OSError):
        modified = path.stat().st_mtime_ns
        os.utime(path, ns=(UNREAD, modified))  # before any modification: relatime notes the next read
        with path.open("rb") as file:
            file.read(1)
        reported = path.stat().st_atime_ns != UNREAD
        os.utime(path, ns=(UNREAD if reported else UNKNOWN, modified))


def all_read(paths: Iterable[Path]) -> bool | None:
    """Return whether each of these was read; None where nobody can tell, or there is none."""
    found = [was_read(path) for path in paths]
    return False if False in found else None if None in found or not found else True


def was_read(path: Path) -> bool | None:
    """Return whether somebody has read a file that is watched; None where nobody can tell."""
    with suppress(OSError):
        accessed = path.stat().st_atime_ns
        return None if accessed == UNKNOWN else accessed != UNREAD
    return None
