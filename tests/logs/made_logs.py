"""Write job folders with logs and an arrivals index, line by line, as a supervisor leaves them."""

from __future__ import annotations

import json
from pathlib import Path

from dstui.jobs.store.folder import JobFolder
from dstui.logs.arrival_index import ArrivalWriter
from dstui.logs.time_parsing import format_iso

BEGAN = 1_760_000_000.0
"""Start of each of these jobs, in seconds since the epoch."""


class MadeJob:
    """A job and the supervisor that records when its lines arrive."""

    def __init__(self, path: Path, ranks: int, *, state: str = "running", hosts: int = 1) -> None:
        self.folder, self.ranks = JobFolder(path), ranks
        self.folder.prepare(1)
        self.notes = ArrivalWriter(self.folder)
        self.hosts = {rank: f"worker-{rank * hosts // ranks}" for rank in range(ranks)}
        self.status(state)

    def status(self, state: str, attempt: int = 1) -> None:
        """Write status.json."""
        ended = state not in ("starting", "running")
        facts = {"pid": 1, "state": "ended" if ended else "started", "exit_code": 0 if ended else None}
        status = {
            "state": state,
            "started": format_iso(BEGAN),
            "ended": format_iso(BEGAN + 60) if ended else None,
            "exit_code": 0 if ended else None,
            "attempt": attempt,
        }
        ranks = {str(rank): {"host": host, **facts} for rank, host in self.hosts.items()}
        self.folder.status_file.write_text(json.dumps({**status, "ranks": ranks}))

    def say(self, rank: int, *lines: str, end: str = "\n", attempt: int = 1) -> None:
        """Write lines of a rank."""
        with self.folder.log(rank, attempt).open("a") as log:
            log.write("".join(line + end for line in lines))

    def update(self, seconds: float, attempt: int = 1) -> None:
        """Let the supervisor record arrivals, this many seconds after the start."""
        self.notes.update(BEGAN + seconds, attempt)
