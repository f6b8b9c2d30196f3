"""Job folders with logs and an arrivals index, as a supervisor leaves them, made line by line."""

from __future__ import annotations

import json
from pathlib import Path

from dstui.jobs.store.folder import JobFolder
from dstui.logs.arrival_index import ArrivalWriter
from dstui.logs.time_parsing import format_iso

BEGAN = 1_760_000_000.0
"""When each of these jobs began, seconds since the epoch."""


class MadeJob:
    """A job of so many ranks, and the supervisor that notes when its lines come."""

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
        """A rank writes lines."""
        with self.folder.log(rank, attempt).open("a") as log:
            log.write("".join(line + end for line in lines))

    def update(self, seconds: float, attempt: int = 1) -> None:
        """The supervisor looks, so many seconds after the beginning."""
        self.notes.update(BEGAN + seconds, attempt)
