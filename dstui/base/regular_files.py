"""Read and write files in folders whose content is not trusted.

Only regular files are opened, never through a symbolic link, and no call blocks: a FIFO or /dev/zero has no end, and a link in a job folder
that came with a repository may point at a private key.
"""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_READ = 16 << 20
"""Bytes of a record that are read. The status of 65,536 ranks takes 7 MB."""
MAX_VALUES = 1_500_000
"""Values of a record. Each takes up to twenty times its bytes in the file."""
DEPTH = 32
"""The maximum depth of the values of a record."""
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; if `flags` create it, only its owner can read it. Raises OSError for anything else."""
    fd = os.open(path, flags | SAFE, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    os.set_blocking(fd, True)  # a child may inherit it
    return fd


def read_regular(path: Path | str, start: int = 0, most: int = MAX_READ) -> bytes:
    """Return up to `most` bytes of a regular file from `start` on. Raises OSError if there is no such file."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size or most  # those of /proc tell none; Python allocates what is asked for, 16 MB a time
        file.seek(start)
        return file.read(min(most, max(size - start, 0)))


def read_end(path: Path | str, most: int) -> bytes:
    """Return the last bytes of a regular file, at most `most`. Raises OSError if there is no such file."""
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
        return file.read(most)


def open_within(path: Path | str, folder: Path) -> int | None:
    """Open a regular file inside a folder (named without links). Return None if a link leads out of the folder.

    The open descriptor is asked where its file is: the path could change between a check and the opening. Raises OSError if the file cannot
    be read.
    """
    fd = open_regular(path)
    if Path(os.readlink(f"/proc/self/fd/{fd}")).is_relative_to(folder):  # noqa: PTH115 - what was opened, followed no further
        return fd
    os.close(fd)
    return None


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path leads to a regular file inside a folder. Raises OSError if it cannot be read."""
    fd = open_within(path, folder.resolve())
    if fd is not None:
        os.close(fd)
    return fd is not None


def append_regular(path: Path | str, data: bytes) -> None:
    """Append in one write, so that the lines of several writers do not mix. Raises OSError if that fails."""
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def replace_regular(path: Path, data: bytes) -> None:
    """Replace the file at a path atomically. Raises OSError if that fails."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        new.unlink()
    try:
        with os.fdopen(open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object. Return {} if it is half-written, nested too deep or not an object."""
    if sum(map(raw.count, (b"[", b"{", b","))) > MAX_VALUES:
        return {}
    with suppress(ValueError, RecursionError):
        found = json.loads(raw)
        if isinstance(found, dict) and _is_flat(found):
            return found
    return {}


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a small regular file. Return {} if there is none."""
    with suppress(OSError):
        return json_object(read_regular(path))
    return {}


def _is_flat(value: Any) -> bool:
    """Return whether a value has at most DEPTH levels: what the parser accepts may still be too deep for its readers."""
    level = [value]
    for _ in range(DEPTH):
        inside = [part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer)]
        level = [part for part in inside if isinstance(part, (dict, list))]
        if not level:
            return True
    return False


WITHOUT_MEMBERS = ("root", "staff")
"""Groups of the system's own folders, which have no members unless an administrator adds some."""


def others_may_write(found: os.stat_result) -> bool:
    """Return whether others may change a file or folder. In a folder with the sticky bit they may only add files."""
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not is_private(found.st_gid, found.st_uid)))


def is_private(group: int, user: int) -> bool:
    """Return whether a group has no members but this user: distributions create one per user, and some groups without any member."""
    with suppress(KeyError):
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
        return found.gr_name in (name, *WITHOUT_MEMBERS) and set(found.gr_mem) <= {name}
    return False
