"""Read and write files: with a size limit, one encoding and atomic replacement. Nothing is replaced unless the caller asks for it.

`was_read` finds out by the access time whether others read a file since it was written. If no rank has read a job's ds_config.json, nothing
was trained with it, however well the job ended.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from dstui.base.limits import MAX_BYTES
from dstui.base.user_error import UserError

PRIVATE = 0o7700
"""The mode bits of a file that only its owner can use."""


class FileProblem(UserError):
    """A file cannot be read or written."""


def read_text(path: Path, opened: int | None = None) -> str:
    """Return the text of a UTF-8 file with its newlines. Raises FileProblem.

    `opened` is an open descriptor, closed here, so that the file that was checked is the one that is read.
    """
    try:
        raw = _bytes(path, MAX_BYTES + 1, opened)
    except IsADirectoryError:
        raise FileProblem(f"{path} is a folder: name a file in it") from None
    except PermissionError:
        raise FileProblem(f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: {reason(error)}") from None
    return _text_of(raw, str(path))


def read_standard_input() -> str:
    """Return the text on standard input, under the conditions of `read_text`. Raises FileProblem."""
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileProblem(f"standard input: {reason(error)}") from None
    return _text_of(raw, "standard input")


def _text_of(raw: bytes, name: str) -> str:
    if len(raw) > MAX_BYTES:
        raise FileProblem(f"{name} is larger than {MAX_BYTES // 1024**2} MiB, too large for a configuration")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell's > writes
        raise FileProblem(f"{name} is encoded in UTF-16: save the file as UTF-8")
    if b"\0" in raw:
        raise FileProblem(f"{name} is a binary file, not text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileProblem(f"{name}:{line}: not UTF-8 (byte 0x{raw[error.start]:02x}): save the file as UTF-8") from None


def _bytes(path: Path, most: int, opened: int | None = None) -> bytes:
    """Return the beginning of a regular file without blocking on a pipe. Raises OSError with ENXIO for other files."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if opened is None else opened
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise IsADirectoryError if stat.S_ISDIR(mode) else OSError(errno.ENXIO, "no regular file")
        data: bytes | None = file.read(most)
        if data is None:  # nothing available yet: /proc/kmsg claims to be a regular file
            raise OSError(errno.ENXIO, "no regular file")
        return data


def is_there(path: Path | str) -> bool:
    """Return whether anything is at the path. Return False for invalid paths (too long, or with a NUL), for which Path's method raises."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path | str) -> bool:
    """Return whether a regular file is at the path, and False for invalid paths."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path | str) -> bool:
    """Return whether a folder is at the path, and False for invalid paths."""
    return os.path.isdir(path)  # noqa: PTH112


def typed_path(text: str) -> Path:
    """Convert a path as typed, expanding `~` as a shell does."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path's own raises where there is no such user


def reason(error: OSError | ValueError) -> str:
    """Return why a path cannot be used, and what to do if that is known."""
    if isinstance(error, ValueError):
        return "not a valid file name"
    hints = {
        "FileNotFoundError": "no such file or folder",
        "PermissionError": "no permission: choose another place, or change its mode",
        "IsADirectoryError": "is a folder",
        "NotADirectoryError": "a part of this path is a file, not a folder",
        "FileExistsError": "there is a file of this name",
    }
    if error.errno == errno.ENOSPC:
        return "the disk is full: free some space, or choose another place"
    if error.errno == errno.ENAMETOOLONG:
        return "longer than a file name can be"
    if error.errno == errno.ENXIO:
        return "is neither a file nor a folder: name a regular file"
    if error.errno == errno.EROFS:
        return "the file system is read-only: choose another place"
    return hints.get(type(error).__name__, error.strerror or str(error))


def state_on_disk(path: Path, text: str) -> Literal["new", "changed", "same"]:
    """Compare a text with the file at the path: no file (`new`), other content, or the same bytes."""
    wanted = text.encode()
    try:
        return "same" if _bytes(path, len(wanted) + 1) == wanted else "changed"
    except (FileNotFoundError, ValueError):
        return "new"
    except OSError as error:
        return "new" if error.errno == errno.ENAMETOOLONG else "changed"


def check_unused(path: Path) -> None:
    """Raise FileProblem if `write_atomic` would refuse a new text without `replace`. Called before the work that makes the text."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: {reason(error)}") from None
    check_replaceable(path)
    if is_file(path):
        raise FileProblem(_taken(path))


def _taken(path: Path) -> str:
    return f"{path} exists with other content: --force replaces it"


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and the missing ones above it. Raises FileProblem."""
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: {reason(error)}") from None


def check_replaceable(path: Path) -> None:
    """Raise FileProblem for a folder, a pipe or a device: no option replaces these."""
    if is_there(path) and not is_file(path):
        raise FileProblem(f"{path}: {reason(OSError(errno.EISDIR if is_folder(path) else errno.ENXIO, ''))}, and is not replaced")


def write_atomic(path: Path, text: str, *, replace: bool = False, executable: bool = False, private: bool = False) -> bool:
    """Write a file completely or not at all. Return False if it had the same bytes already.

    `private`: only the owner can read the file, whatever the umask and the mode of the file that it replaces. Raises FileProblem, also if
    the file has other content and `replace` is false. A symbolic link stays: its target is replaced.
    """
    check_replaceable(path)  # before its links are followed: /dev/stdout leads to a pipe without a path
    path = Path(os.path.realpath(path)) if os.path.islink(path) else path  # noqa: PTH114 - neither raises for a loop
    state = state_on_disk(path, text)
    if state == "same":
        if private:
            _close_to_others(path)
        return False
    if state == "changed" and not replace:
        raise FileProblem(_taken(path))
    temporary = None
    try:
        mode = path.stat().st_mode & 0o7777 if state == "changed" else (0o777 if executable else 0o666) & ~_umask()
        mode &= PRIVATE if private else 0o7777
        from tempfile import mkstemp  # reading files does not need it

        handle, temporary = mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except (OSError, ValueError) as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        gone = isinstance(error, FileNotFoundError) and not is_folder(path.parent)
        raise FileProblem(f"{path}: " + (f"there is no folder {path.parent}" if gone else reason(error))) from None
    return True


def _close_to_others(path: Path) -> None:
    with contextlib.suppress(OSError):  # the file belongs to another user and stays
        path.chmod(path.stat().st_mode & PRIVATE)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


UNREAD, UNKNOWN = 0, 10**9
"""Access times (ns since the epoch) that no real reader leaves: one that a read changes, and one that stays if reads are not recorded (a
disk mounted with noatime)."""


def watch_reads(path: Path) -> None:
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
