"""The job folder: all files of one run, and who may write them.

    plan.yaml and the rendered files     as launched
    machine.json                         the machine at the launch
    launch.json                          what the supervisor starts
    status.json                          the state of the job; written by the holder of supervisor.lock
    events.jsonl                         what happened when
    arrivals.index                       when which log had how many bytes (dstui/logs/arrival_index.py)
    logs/rank_N.log  ranks/rank_N.json   by the shim of each rank; from the second attempt on under attempts/N/
    engine/rank_N.jsonl, .json, .stacks  by the hook of each rank, beside its logs: what the engine did, what it does now, Python stacks
    launcher.log  supervisor.log         their output
    gpus/rank_N.json                     the last NVML report of another host, whose first rank is N
    usage.json                           the highest memory use of each GPU by NVML, from any session that watched the run
    measured.json                        what the run took, compared to the forecast, if its Plan names a model
    heartbeat                            touched by the supervisor while it lives, for readers on other hosts
    stop.json                            a request to end the job
    stacks_asked                         touched to request the Python stacks of ranks on other hosts
    .reserve                             while the job runs: space for the status on a full disk

Readers must expect each of them to be missing or half-written.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, reason
from dstui.base.regular_files import append_regular, json_object, open_regular, read_json, read_regular, replace_regular
from dstui.jobs.store.record_forms import EVENT, STOP, sound
from dstui.jobs.store.records import JobStatus, LaunchRecord
from dstui.logs.log_folder import FINAL, JobSpan
from dstui.logs.time_parsing import format_iso, parse_iso

__all__ = ["FINAL", "RUNS_FOLDER", "JobFolder", "format_iso", "parse_iso", "read_json"]

RUNS_FOLDER = "dstui_runs"
"""The folder of job folders, in the current folder."""
MAX_EVENTS = 16 << 20
"""Bytes of events.jsonl that are read at once."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk or an exhausted quota."""
LEAST_RESERVE = 32 << 10
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class JobFolder:
    """The folder of one job: its paths and small files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.status_file = self.path / "status.json"
        self.launch_file = self.path / "launch.json"
        self.events_file = self.path / "events.jsonl"
        self.arrivals_file = self.path / "arrivals.index"
        self.reserve = self.path / ".reserve"
        self.stop_file = self.path / "stop.json"
        self.lock_file = self.path / "supervisor.lock"
        self.heartbeat_file = self.path / "heartbeat"
        self.stacks_request = self.path / "stacks_asked"
        self.launcher_log = self.path / "launcher.log"
        self.supervisor_log = self.path / "supervisor.log"
        self.ds_config = self.path / "ds_config.json"

    def __repr__(self) -> str:
        return f"JobFolder({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def name(self) -> str:
        """The run's name, which is that of its folder."""
        return self.path.name

    @property
    def begun_in(self) -> str:
        """The folder in which it was started, by its path: the one that contains `dstui_runs`."""
        parent = self.path.parent
        return str(parent.parent if parent.name == RUNS_FOLDER else parent)

    @property
    def ds_configs(self) -> list[Path]:
        """The existing rendered configurations: ds_config.json, or ds_config_MODEL.json for each of several models."""
        return sorted(self.path.glob("ds_config*.json"))

    def attempt(self, number: int) -> Path:
        """Return the folder with the logs and records of one attempt."""
        return self.path if number == 1 else self.path / "attempts" / str(number)

    def prepare(self, attempt: int) -> None:
        """Create the folders that the shims of an attempt write to. Raises OSError if the job folder belongs to another user."""
        self.path.mkdir(0o700, parents=True, exist_ok=True)
        self._guard()
        for part in ("logs", "ranks"):
            (self.attempt(attempt) / part).mkdir(0o700, parents=True, exist_ok=True)

    def _guard(self) -> None:
        """Raise OSError if others may write the folder, or another one has replaced it. Called before anything is written."""
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & WRITABLE_BY_OTHERS:
            raise OSError(errno.EPERM, "not a folder of this user's alone", str(self.path))

    @property
    def names_model(self) -> bool:
        """Return whether its Plan names a model, so that the run can be compared with a forecast."""
        with suppress(OSError):
            return re.search(rb"^models?:", read_regular(self.path / "plan.yaml", 0, MAX_EVENTS), re.MULTILINE) is not None
        return False

    def log(self, rank: int, attempt: int = 1) -> Path:
        """Return the path of a rank's output."""
        return self.attempt(attempt) / "logs" / f"rank_{rank}.log"

    def record(self, rank: int, attempt: int = 1) -> Path:
        """Return the path of the record of a rank's shim."""
        return self.attempt(attempt) / "ranks" / f"rank_{rank}.json"

    def engine(self, rank: int, attempt: int = 1, kind: str = "jsonl") -> Path:
        """Return the path of a file of a rank's hook: `jsonl` what its engine did, `json` what it does now, `stacks` its Python stacks."""
        return self.attempt(attempt) / "engine" / f"rank_{rank}.{kind}"

    def gpus(self, rank: int) -> Path:
        """Return the path of the GPU report of the host whose first rank this is."""
        return self.path / "gpus" / f"rank_{rank}.json"

    def read_status(self) -> JobStatus | None:
        """Read status.json; None if it is missing or invalid."""
        return JobStatus.from_json(read_json(self.status_file))

    def read_span(self) -> JobSpan:
        """Return when the job began and ended, from status.json."""
        status = self.read_status()
        return JobSpan(status.started, status.ended, status.final) if status else JobSpan()

    @property
    def has_ended(self) -> bool:
        """Return whether status.json has the job's end. `status.current_status` also sees an end that could not be written."""
        return self.read_span().final

    def read_launch(self) -> LaunchRecord | None:
        """Read launch.json; None if it is missing or invalid."""
        return LaunchRecord.from_json(read_json(self.launch_file))

    def read_stop(self) -> dict[str, Any]:
        """Read stop.json; empty if it is missing or invalid."""
        asked = read_json(self.stop_file)
        return asked if sound(asked, STOP) else {}

    def read_events(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the lines of events.jsonl from a byte on: the bytes of each line, and its event, empty if it is invalid."""
        data = b""
        with suppress(OSError):
            data = read_regular(self.events_file, start, MAX_EVENTS)
        *lines, rest = data.split(b"\n")
        for line in lines:
            event = json_object(line)
            yield len(line) + 1, event if sound(event, EVENT) else {}
        if len(rest) == MAX_EVENTS:
            yield len(rest), {}

    def numbered_events(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the events of events.jsonl with their line numbers, from 1. Invalid lines are skipped."""
        return ((number, event) for number, (_, event) in enumerate(self.read_events(), 1) if event)

    def keep_reserve(self, status: JobStatus) -> None:
        """Allocate the space that the status needs on a full disk. Raises OSError if there is none any more."""
        self._guard()
        replace_regular(self.reserve, b" " * max(LEAST_RESERVE, 2 * len(json.dumps(status.as_json(), indent=1))))

    def write_status(self, status: JobStatus) -> None:
        """Replace status.json atomically; on a full disk write it into the reserved space. Raises OSError if it cannot be written."""
        try:
            self.write_json(self.status_file, status.as_json())
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._write_in_reserve(json.dumps(status.as_json()).encode())

    def _write_in_reserve(self, data: bytes) -> None:
        """Write the status into the reserved file, and keep its size for the next one: JSON may end in blanks."""
        spare = self.reserve if self.reserve.exists() else self.status_file
        fd = open_regular(spare, os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            if len(data) > size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.status_file))
            os.pwrite(fd, data.ljust(size), 0)
        finally:
            os.close(fd)
        if spare == self.reserve:
            spare.replace(self.status_file)

    def write_json(self, path: Path, found: dict[str, Any]) -> None:
        """Replace a record atomically. Raises OSError if it cannot be written."""
        self._guard()
        replace_regular(path, json.dumps(found, indent=1).encode() + b"\n")

    def append_event(self, time: float, event: str, **facts: Any) -> None:
        """Append a line to events.jsonl. Raises OSError if it cannot be written."""
        self._guard()
        append_regular(self.events_file, json.dumps({"t": round(time, 3), "event": event, **facts}).encode() + b"\n")

    def beat(self) -> None:
        """Touch the heartbeat. Raises OSError if it cannot be written."""
        self._touch(self.heartbeat_file)

    def ask_for_stacks(self) -> None:
        """Request the Python stacks of ranks on other hosts from the supervisor. Raises OSError if that cannot be written."""
        self._touch(self.stacks_request)

    def stacks_asked(self) -> float:
        """Return when stacks were last requested; 0 if never."""
        with suppress(OSError):
            return self.stacks_request.lstat().st_mtime
        return 0.0

    def _touch(self, path: Path) -> None:
        self._guard()
        fd = open_regular(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.utime(fd)
        finally:
            os.close(fd)

    def silence(self, now: float) -> float | None:
        """Return the seconds since the last heartbeat; None if there was none, as with an older supervisor."""
        with suppress(OSError):
            return max(now - self.heartbeat_file.lstat().st_mtime, 0.0)
        return None

    def lock(self) -> int | None:
        """Take the lock of this job and return a descriptor that holds it; None if another process has it.

        Also None if the lock is not available at all (the folder is gone, or belongs to another user).
        """
        fd = self._opened_lock()
        if fd is None:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def is_attended(self) -> bool:
        """Return whether a process holds the lock of the job. Nothing is created or written; True if that is unknown."""
        try:
            fd = open_regular(self.lock_file)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def _opened_lock(self) -> int | None:
        """Open the file of the lock, creating it if it is missing; on a read-only disk as it is."""
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            with suppress(OSError):
                self._guard()
                return open_regular(self.lock_file, flags)
        return None


LONGEST = 100
"""Characters of a Plan's name in the names of its job folders: a folder's name has at most 255 bytes."""


def create_folder(name: str, now: datetime, run_dir: Path | None = None) -> JobFolder:
    """Create an empty job folder: `run_dir` itself, else dstui_runs/NAME-YYYYMMDD-HHMMSS (-2 and so on) in the current folder.

    Only its owner can read it, since it will contain environments and arguments. Raises FileProblem if it cannot be created or is not
    empty.
    """
    if run_dir is not None:
        return _given(run_dir.absolute())
    stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-.')[:LONGEST] or 'run'}-{now:%Y%m%d-%H%M%S}"
    base = Path.cwd() / RUNS_FOLDER
    for number in range(1, 1000):
        path = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(0o700, parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise FileProblem(f"Cannot make the job folder {path}: {reason(error)} (--run-dir names another place)") from None
        return JobFolder(path)
    raise FileProblem(f"{base} already has a thousand runs of this second")


def _given(path: Path) -> JobFolder:
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileProblem(f"{path} is not empty; a job folder is never reused: give a new one with --run-dir")
        path.chmod(0o700)
    except FileExistsError:
        raise FileProblem(f"{path} is a file, not a folder; give a new one with --run-dir") from None
    except (OSError, ValueError) as error:
        raise FileProblem(f"Cannot make the job folder {path}: {reason(error)} (--run-dir names another place)") from None
    return JobFolder(path)
