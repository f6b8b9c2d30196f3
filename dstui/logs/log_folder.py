"""The paths of a job's logs, as far as log readers need them. `dstui.jobs.store.folder.JobFolder` is such a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from dstui.base.dataclass import dataclass

FINAL = ("succeeded", "failed", "stopped", "lost")
"""The states of a job that has ended."""


@dataclass(frozen=True, slots=True)
class JobSpan:
    """The beginning and end of a job, seconds since the epoch; None if not known (yet)."""

    started: float | None = None
    ended: float | None = None
    final: bool = False
    """True if the job has ended."""


class LogFolder(Protocol):
    """A folder with the logs of every rank and attempt, the launcher's, events and the arrival index."""

    @property
    def arrivals_file(self) -> Path:
        """The arrival index (arrival_index.py)."""

    @property
    def events_file(self) -> Path:
        """The events, one JSON object per line."""

    @property
    def launcher_log(self) -> Path:
        """The output of the launcher itself."""

    def log(self, rank: int, attempt: int = 1) -> Path:
        """Return the path of the output of one rank."""

    def attempt(self, number: int) -> Path:
        """Return the folder of the logs of one attempt."""

    def read_span(self) -> JobSpan:
        """Return when the job began and ended."""

    def read_events(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the events from this byte of events.jsonl on, each with the size of its line in bytes."""
