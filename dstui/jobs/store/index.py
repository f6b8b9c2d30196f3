"""Find runs: those in the user's index (ownership.py), and those in dstui_runs of the current folder, whoever put them there."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dstui.base.dataclass import dataclass
from dstui.base.files import is_file, reason
from dstui.base.user_error import NoRun
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder
from dstui.jobs.store.ownership import Entry, entries, index_file
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import current_status, rebuilt
from dstui.logs.time_parsing import format_iso

RUN = "a job folder, a Plan's name (its newest run), a run's name or its beginning (default: the newest run of this folder)"
"""The values of the commands' argument RUN."""
STAMP = re.compile(r"-\d{8}-\d{6}(?:-\d+)?$")
"""The suffix of a run's folder after the Plan's name."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that still exists."""

    folder: JobFolder
    status: JobStatus
    """As it was last written."""
    entry: Entry | None
    """Its entry in the index; None if it is only in the current folder."""

    @property
    def started(self) -> str:
        """Return the time of its start; "" if that is unknown."""
        return format_iso(self.status.started) if self.status.started is not None else ""

    @property
    def plan(self) -> str:
        """The name of its Plan."""
        return self.entry.name if self.entry and self.entry.name else STAMP.sub("", self.folder.name)

    @property
    def begun_in(self) -> str:
        """The folder in which it was started."""
        if self.entry and self.entry.begun_in:
            return self.entry.begun_in
        return self.folder.begun_in

    @property
    def is_here(self) -> bool:
        """Return whether it was started in the current folder."""
        return os.path.realpath(self.begun_in) == os.path.realpath(Path.cwd())


def known_runs() -> list[KnownRun]:
    """Return the existing runs, oldest first."""
    found: dict[Path, Entry | None] = {Path(entry.folder): entry for entry in entries()}
    with suppress(OSError):
        lying = (Path(os.path.realpath(path)) for path in sorted((Path.cwd() / RUNS_FOLDER).iterdir()))
        found.update({path: found.get(path) for path in lying})
    statuses = ((folder, entry, last_status(folder)) for path, entry in found.items() if is_job(folder := JobFolder(path)))
    runs = [KnownRun(folder, status, entry) for folder, entry, status in statuses if status is not None]
    return sorted((run for run in runs if run.started), key=lambda run: run.started)


def listing_stamp() -> tuple[int, ...]:
    """Return numbers that change whenever a run is added."""
    stamp: list[int] = []
    for path in (index_file(), Path.cwd() / RUNS_FOLDER):
        with suppress(OSError):
            found = path.stat()
            stamp += [found.st_ino, found.st_size, found.st_mtime_ns]
    return tuple(stamp)


def last_status(folder: JobFolder) -> JobStatus | None:
    """Return the status as it was last written, or as the records of the ranks tell it."""
    return folder.read_status() or rebuilt(folder)


def folders() -> list[JobFolder]:
    """Return the folders of the existing runs, oldest first."""
    return [run.folder for run in known_runs()]


def runs() -> list[tuple[JobFolder, JobStatus]]:
    """Return every run with its current status, oldest first. What a run has ended with is read once."""
    now = ((run.folder, run.status if run.status.final else current_status(run.folder)) for run in known_runs())
    return [(folder, status) for folder, status in now if status is not None]


def is_job(folder: JobFolder) -> bool:
    """Return whether a folder is a job's. Its status may be missing."""
    return is_file(folder.status_file) or is_file(folder.launch_file)


def find(name: str = "") -> JobFolder:
    """Return a run by its folder, its Plan's name (the newest run), its own name or an unambiguous prefix of that.

    Without a name, the newest run of the current folder. Raises NoRun with a sentence.
    """
    if name and is_job(given := JobFolder(name)):
        return given
    if "/" in name:
        raise NoRun(f"There is no job in {name}{_why_not(name)}")
    found = known_runs()
    if not found:
        raise NoRun("No runs yet: dstui --headless PLAN starts one")
    return _newest_here(found) if not name else _named(name, found)


def _newest_here(found: Sequence[KnownRun]) -> JobFolder:
    here = [run for run in found if run.is_here]
    if not here:
        elsewhere = "; ".join(f"{run.folder.name} in {run.begun_in}" for run in found[:-4:-1])
        raise NoRun(f"No run was started in this folder: name one. The newest elsewhere: {elsewhere}")
    return _newest(here)


def _newest(found: Sequence[KnownRun]) -> JobFolder:
    """Return the run that was started last; the user's own runs come before others in the folder."""
    return ([run for run in found if run.entry] or found)[-1].folder


def _named(name: str, found: Sequence[KnownRun]) -> JobFolder:
    same = [run for run in found if run.folder.name == name]
    if not same and (of_plan := [run for run in found if run.plan == name]):
        of_plan = [run for run in of_plan if run.is_here] or of_plan
        if len({run.begun_in for run in of_plan}) == 1:
            return _newest(of_plan)
        same = of_plan
    same = same or [run for run in found if run.folder.name.startswith(name)]
    if not same:
        raise NoRun(f"There is no run called {name}. dstui runs lists them; the latest is {found[-1].folder.name}")
    if len(same) > 1:
        names = [run.folder.name for run in same]
        reported = names if len(set(names)) == len(names) else [str(run.folder.path) for run in same]
        raise NoRun(f"{name} may be {', '.join(reported[:-1])} or {reported[-1]}: write more of the name, or the folder")
    return same[0].folder


def _why_not(name: str) -> str:
    """Return why a folder cannot be read, if that is the reason."""
    try:
        os.scandir(name).close()
    except (OSError, ValueError) as error:
        return f" ({reason(error)})" if isinstance(error, OSError) else ""
    return ": it has neither status.json nor launch.json"
