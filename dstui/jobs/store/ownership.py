"""Decide which jobs are the user's own, which dstui may supervise, stop, restart, announce and write to.

The content of a job folder is not trusted: it may have come with a repository, be a copy, or belong to somebody else. Ownership is
therefore recorded outside of it, in the user's index of runs: one line per run, appended at its start, with path and tag.
    own_tag(folder, status)      the tag of a job of the user's own; raises NotOwn with the reason for any other
The index also serves to find runs in other folders. Runs whose folder is gone are skipped.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import MAX_READ, append_regular, json_object, open_regular, read_regular
from dstui.jobs.store.folder import WRITABLE_BY_OTHERS, JobFolder
from dstui.jobs.store.processes import SUPERVISORS
from dstui.jobs.store.record_forms import is_text
from dstui.jobs.store.records import VERSION, JobStatus
from dstui.logs.time_parsing import format_iso

DECIDING = ("status.json", "launch.json", "stop.json", "events.jsonl", "supervisor.lock", "heartbeat", "logs", "ranks", "attempts")
"""Files that decide about a job, or that are written on behalf of it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run of this user. `folder`: its path without symbolic links; `begun_in`: the folder in which it was started."""

    folder: str
    name: str = ""
    """The Plan's name, else that of its script."""
    started: str = ""
    tag: str = ""
    """"" in entries of older versions of dstui."""
    begun_in: str = ""


class NotOwn(Exception):
    """dstui may not act on a job. Holds the reason as the end of a sentence that begins with the run's name."""


_of_this_process: list[Entry] = []
"""Runs that this process has started and could not write into the index."""


def index_file() -> Path:
    """Return the path of the index."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "runs.jsonl"


def remember(folder: JobFolder, name: str, started: float | None, tag: str) -> str:
    """Add a run. Return why that failed; "" if it did not. A failure costs only the entry, not the run.

    `started`: seconds since the epoch.
    """
    entry = Entry(os.path.realpath(folder.path), name, format_iso(started or 0.0), tag, str(Path.cwd()))
    file = index_file()
    try:
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        os.close(open_regular(file, os.O_WRONLY | os.O_CREAT))
        if _is_mine(file):
            size = file.stat().st_size
            whole = not size or read_regular(file, size - 1) == b"\n"  # otherwise its last line was cut
            append_regular(file, (b"" if whole else b"\n") + json.dumps(asdict(entry)).encode() + b"\n")
            return ""
        problem = "belongs to another user, or others may write it"
    except OSError as error:
        problem = error.strerror or str(error)
    _of_this_process.append(entry)
    return f"{file}: {problem}"


def entries() -> list[Entry]:
    """Return the runs of this user, oldest first."""
    return [*_written(index_file()), *_of_this_process]


_read: tuple[object, list[Entry]] = (None, [])


def _written(file: Path) -> list[Entry]:
    """Read the index, cached until it changes: it is needed many times a second."""
    global _read  # noqa: PLW0603 - what a function remembers
    try:
        found = file.lstat()
        state = (file, found.st_ino, found.st_size, found.st_mtime_ns)
        if state != _read[0]:
            data = read_regular(file, max(found.st_size - MAX_READ, 0)) if _is_mine(file) else b""
            _read = (state, [entry for line in data.splitlines() if (entry := _entry(json_object(line)))])
    except OSError:
        return []
    return _read[1]


def _entry(found: Mapping[str, Any]) -> Entry | None:
    facts = {name: found.get(name, "") for name in Entry.__slots__}
    return Entry(**facts) if all(map(is_text, facts.values())) and facts["folder"] else None


def own_tag(folder: JobFolder, status: JobStatus | None) -> str:
    """Return the tag of the job in a folder if it is the user's own. `status`: the content of its status.json, None without one.

    Raises NotOwn if the index does not have this folder with this tag, if others could have written the deciding files, or if a newer dstui
    has written them.
    """
    reported, place, known = status.tag if status else None, os.path.realpath(folder.path), entries()
    here = [entry for entry in known if entry.folder == place or (entry.tag and entry.tag == reported and _same(entry.folder, place))]
    tag = next((entry.tag for entry in reversed(here) if entry.tag and entry.tag == (reported or entry.tag)), "")
    if strange := _other_writer(folder):
        raise NotOwn(strange)
    if status and status.version > VERSION:
        raise NotOwn(f"is supervised by a newer dstui (version {status.version} of status.json, and this one knows {VERSION})")
    if tag:
        return tag
    if any(not entry.tag for entry in here):
        by_hand = shlex.quote(f"{SUPERVISORS[-1]} {folder.path}")
        raise NotOwn(f"was started by an older dstui, which recorded no tag (pkill -TERM -f {by_hand} stops it)")
    if here:
        raise NotOwn("contains another job than the one that you started here")
    elsewhere = next((entry.folder for entry in known if entry.tag and entry.tag == reported), None)
    if elsewhere:
        raise NotOwn(f"is a copy of {elsewhere}, or was moved from there")
    raise NotOwn("is not in your index of runs")


def is_own(folder: JobFolder, status: JobStatus | None) -> bool:
    """Return whether the job in a folder is the user's own."""
    with suppress(NotOwn):
        return bool(own_tag(folder, status))
    return False


def owner_of(folder: JobFolder) -> int:
    """Return the owner of a job folder; this user if that is not visible."""
    try:
        return folder.path.stat().st_uid
    except OSError:
        return os.geteuid()


def _other_writer(folder: JobFolder) -> str:
    """Return who else could have written the deciding files of a job; "" if nobody could."""
    for path in (folder.path, *(folder.path / name for name in DECIDING)):
        try:
            found = Path(os.path.realpath(path) if path == folder.path else path).lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        if found.st_uid != os.geteuid():
            return f"is another user's ({_name(found.st_uid)})"
        if stat.S_ISLNK(found.st_mode):
            return f"has a symbolic link instead of {path.name}"
        reached = path == folder.path or folder.path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        if found.st_mode & WRITABLE_BY_OTHERS and reached:
            return f"can be written by others (chmod -R go-w {shlex.quote(str(folder.path))} closes it)"
    return ""


def _is_mine(file: Path) -> bool:
    """Return whether only this user can have written a file."""
    found = file.lstat()
    return found.st_uid == os.geteuid() and not found.st_mode & WRITABLE_BY_OTHERS


def _same(one: str, other: str) -> bool:
    """Return whether two paths are one folder that is mounted twice."""
    with suppress(OSError):
        return os.path.samefile(one, other)  # noqa: PTH121 - two texts
    return False


def _name(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"
