"""Where the logs of a job lie, as far as readers of logs need to know it; `dstui.run.jobs.folder.JobFolder` is one such folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol


class LogFolder(Protocol):
    """A folder with the logs of every rank and attempt, the launcher's, events and the arrival index."""

    @property
    def arrivals_file(self) -> Path:
        """The arrival index (arrival_index.py)."""

    @property
    def events_file(self) -> Path:
        """One JSON object per line."""

    @property
    def launcher_log(self) -> Path:
        """The output of the launcher itself."""

    def log(self, rank: int, attempt: int = 1) -> Path:
        """The output of one rank."""

    def attempt(self, number: int) -> Path:
        """Where the logs of one attempt lie."""

    def read_status(self) -> dict[str, Any]:
        """status.json; empty where there is none."""

    def read_events(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """The events from this byte of events.jsonl on, each with the size of its line in bytes."""


FINAL = ("succeeded", "failed", "stopped", "lost")
"""The states of a job that has ended."""
