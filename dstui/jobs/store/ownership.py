"""Which jobs are this user's own, to act for: to look after, to stop, to start again, to tell of, to write about.

A job folder says of itself what anybody has written into it: it may have come with a repository, be a copy, or belong to somebody else.
So what makes one's own lies outside of it, in the user's index of runs: one line per run, appended at its start, with place and tag.

    own_tag(folder, status)      the tag of the job that may be acted for, or NotOwn with why it is only looked at

The index is also how a run elsewhere is found. Runs whose folder is gone are passed over.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dstui.base.regular_files import MAX_READ, append_regular, json_object, open_regular, read_regular
from dstui.jobs.store.folder import OF_OTHERS, JobFolder
from dstui.jobs.store.processes import SUPERVISORS
from dstui.jobs.store.record_forms import is_text
from dstui.jobs.store.records import VERSION, JobStatus
from dstui.logs.time_parsing import format_iso

DECIDING = ("status.json", "launch.json", "stop.json", "events.jsonl", "supervisor.lock", "heartbeat", "logs", "ranks", "attempts")
"""What decides about a job, or is written by who acts for it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run of this user. `folder`: where it lies, without symbolic links; `begun_in`: the folder in which it was started."""

    folder: str
    name: str = ""
    """The Plan's name, else its script's."""
    started: str = ""
    tag: str = ""
    """"" in what older versions of dstui have written."""
    begun_in: str = ""


class NotOwn(Exception):
    """dstui does not act for a job: why, as the end of a sentence that begins with the run's name."""


_of_this_process: list[Entry] = []
"""What this process has started and could not write into the index: its own all the same."""


def index_file() -> Path:
    """Return where the index lies."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "runs.jsonl"


def remember(folder: JobFolder, name: str, started: float | None, tag: str) -> str:
    """Add a run; why that was not possible, "" where it was. It costs the entry, not the run.

    `started`: seconds since the epoch.
    """
    entry = Entry(os.path.realpath(folder.path), name, format_iso(started or 0.0), tag, str(Path.cwd()))
    file = index_file()
    try:
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        os.close(open_regular(file, os.O_WRONLY | os.O_CREAT))
        if _is_mine(file):
            size = file.stat().st_size
            whole = not size or read_regular(file, size - 1) == b"\n"  # else its last line was cut
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
    """Return the index as it stands. It is asked many times a second, and read only where it has changed."""
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
    """Return the tag of the job in a folder that is this user's own. `status`: what the folder says, None where it says nothing.

    Raises NotOwn where the index does not know this folder with this tag, where others could have written what decides, or where a newer
    dstui has written it.
    """
    reported, place, known = status.tag if status else None, os.path.realpath(folder.path), entries()
    here = [entry for entry in known if entry.folder == place or (entry.tag and entry.tag == reported and _same(entry.folder, place))]
    tag = next((entry.tag for entry in reversed(here) if entry.tag and entry.tag == (reported or entry.tag)), "")
    if strange := _strange(folder):
        raise NotOwn(strange)
    if status and status.version > VERSION:
        raise NotOwn(f"is looked after by a newer dstui (version {status.version} of status.json, and this one knows {VERSION})")
    if tag:
        return tag
    if any(not entry.tag for entry in here):
        by_hand = shlex.quote(f"{SUPERVISORS[-1]} {folder.path}")
        raise NotOwn(f"was started by an older dstui, which noted no tag (pkill -TERM -f {by_hand} stops it)")
    if here:
        raise NotOwn("holds another job than the one that you started here")
    elsewhere = next((entry.folder for entry in known if entry.tag and entry.tag == reported), None)
    if elsewhere:
        raise NotOwn(f"is a copy of {elsewhere}, or was moved from there")
    raise NotOwn("is not in your index of runs")


def is_own(folder: JobFolder, status: JobStatus | None) -> bool:
    """Return whether the job in a folder is this user's own."""
    with suppress(NotOwn):
        return bool(own_tag(folder, status))
    return False


def whose(folder: JobFolder) -> int:
    """Return the user that a job folder belongs to; this one where that cannot be seen."""
    try:
        return folder.path.stat().st_uid
    except OSError:
        return os.geteuid()


def _strange(folder: JobFolder) -> str:
    """Return who else could have written what decides about a job; "" where nobody could."""
    for path in (folder.path, *(folder.path / name for name in DECIDING)):
        try:
            found = Path(os.path.realpath(path) if path == folder.path else path).lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"cannot be looked at ({error.strerror})"
        if found.st_uid != os.geteuid():
            return f"is another user's ({_name(found.st_uid)})"
        if stat.S_ISLNK(found.st_mode):
            return f"has a symbolic link in the place of {path.name}"
        reached = path == folder.path or folder.path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        if found.st_mode & OF_OTHERS and reached:
            return f"is one that others may write (chmod -R go-w {shlex.quote(str(folder.path))} closes it)"
    return ""


def _is_mine(file: Path) -> bool:
    """Return whether nobody else can have written a file."""
    found = file.lstat()
    return found.st_uid == os.geteuid() and not found.st_mode & OF_OTHERS


def _same(one: str, other: str) -> bool:
    """Return whether two paths are one folder, mounted twice."""
    with suppress(OSError):
        return os.path.samefile(one, other)  # noqa: PTH121 - two texts
    return False


def _name(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"
