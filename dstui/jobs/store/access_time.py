"""Find out whether a file was read since it was written, by its access time, if the file system records that.

If no rank has read a job's ds_config.json, nothing was trained with it, however well the job ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

UNREAD, UNKNOWN = 0, 10**9
"""Access times (ns since the epoch) that no real reader leaves: one that a read changes, and one that stays if reads are not recorded (a
disk mounted with noatime)."""


def watch(path: Path) -> None:
    """Prepare a file for `was_read`, as far as the file system permits."""
    with suppress(OSError):
        modified = path.stat().st_mtime_ns
        os.utime(path, ns=(UNREAD, modified))  # before any modification, so that relatime records the next read
        with path.open("rb") as file:
            file.read(1)
        reported = path.stat().st_atime_ns != UNREAD
        os.utime(path, ns=(UNREAD if reported else UNKNOWN, modified))


def all_read(paths: Iterable[Path]) -> bool | None:
    """Return whether all of these were read; None if that is unknown or there are none."""
    found = [was_read(path) for path in paths]
    return False if False in found else None if None in found or not found else True


def was_read(path: Path) -> bool | None:
    """Return whether a watched file was read; None if that is unknown."""
    with suppress(OSError):
        accessed = path.stat().st_atime_ns
        return None if accessed == UNKNOWN else accessed != UNREAD
    return None
