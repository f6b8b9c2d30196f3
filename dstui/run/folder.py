"""The job folder: where everything about one run lies, and who may write it.

    plan.yaml and the rendered files     as launched
    machine.json                         the machine as it was then
    launch.json                          what the supervisor starts
    status.json                          the truth about the job; written by whoever holds supervisor.lock
    events.jsonl                         what happened when
    arrivals.index                       when which log had how many bytes (times.py)
    logs/rank_N.log  ranks/rank_N.json   by the shim of each rank; from the second attempt on under attempts/N/
    launcher.log  supervisor.log         their output
    stop.json                            somebody asks for the end of the job

Whoever reads must expect each of them to be missing or half-written.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FINAL = ("succeeded", "failed", "stopped", "lost")
"""The states of a job that has ended."""
RUNS_FOLDER = "dstui_runs"
"""Where job folders go, in the current folder."""


class JobFolder:
    """The folder of one job: its paths, and the small files in it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.status_file = self.path / "status.json"
        self.launch_file = self.path / "launch.json"
        self.events_file = self.path / "events.jsonl"
        self.arrivals_file = self.path / "arrivals.index"
        self.stop_file = self.path / "stop.json"
        self.lock_file = self.path / "supervisor.lock"
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
        """The run's name: that of its folder."""
        return self.path.name

    def attempt(self, number: int) -> Path:
        """Where the logs and records of one attempt lie."""
        return self.path if number == 1 else self.path / "attempts" / str(number)

    def prepare(self, attempt: int) -> None:
        """Make the folders that the shims of an attempt write to."""
        for part in ("logs", "ranks"):
            (self.attempt(attempt) / part).mkdir(parents=True, exist_ok=True)

    def log(self, rank: int, attempt: int = 1) -> Path:
        """The output of one rank."""
        return self.attempt(attempt) / "logs" / f"rank_{rank}.log"

    def record(self, rank: int, attempt: int = 1) -> Path:
        """What the shim of one rank says about it."""
        return self.attempt(attempt) / "ranks" / f"rank_{rank}.json"

    def read_status(self) -> dict[str, Any]:
        """status.json as it is; empty where there is none, or none that makes sense."""
        status = read_json(self.status_file)
        return status if _sound(status) else {}

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace status.json in one step. OSError where it cannot be written."""
        new = self.status_file.with_suffix(".new")
        new.write_text(json.dumps(status, indent=1) + "\n", encoding="utf-8")
        new.replace(self.status_file)

    def append_event(self, time: float, event: str, **facts: Any) -> None:
        """One line of events.jsonl. OSError where it cannot be written."""
        line = json.dumps({"t": round(time, 3), "event": event, **facts}) + "\n"
        fd = os.open(self.events_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def lock(self) -> int | None:
        """Become the one who looks after this job: a descriptor that holds the lock, None where somebody else does.

        Also None where the lock cannot be had at all (the folder is gone, or belongs to somebody else).
        """
        fd = _opened(self.lock_file)
        if fd is None:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON object; empty where it is missing, half-written or something else."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict):
            return found
    return {}


def _opened(path: Path) -> int | None:
    """A file for a lock, made where it is missing; on a read-only disk as it is."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_CLOEXEC, 0o666)
    return None


def _sound(status: dict[str, Any]) -> bool:
    """Whether a status has the form that its readers rely on; another program, or another version, may have written it."""
    ranks, attempt = status.get("ranks", {}), status.get("attempt", 1)
    processes = [status.get(name) for name in ("supervisor", "front", "launcher")]
    return (
        isinstance(ranks, dict)
        and all(number.isdigit() and isinstance(facts, dict) for number, facts in ranks.items())
        and all(process is None or isinstance(process, dict) for process in processes)
        and isinstance(attempt, int)
        and attempt > 0
    )


def iso(time: float) -> str:
    """A moment as status.json writes it, in UTC."""
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds")


def from_iso(text: str | None) -> float | None:
    """The reverse of `iso`; None where there is no moment in it."""
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(text or "").timestamp()
    return None
