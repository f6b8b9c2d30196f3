"""Read and write a job's status.json as JSON, as scripts see it."""

from __future__ import annotations

from typing import Any

from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.folder import JobFolder


def status_json(folder: JobFolder) -> dict[str, Any]:
    """Return the status as it is on disk; {} if there is none or it is invalid."""
    status = folder.read_status()
    return status.as_json() if status else {}


def refreshed_json(folder: JobFolder) -> dict[str, Any]:
    """Take the job over if its supervisor was killed, then return its status; "foreign" says why the job is not the user's own."""
    status = take_over(folder)
    return status.as_json() | ({"foreign": status.foreign} if status.foreign else {}) if status else {}


def write_status_json(folder: JobFolder, found: dict[str, Any]) -> None:
    """Write a status without checking it."""
    folder.write_json(folder.status_file, found)
