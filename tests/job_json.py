"""status.json of a job as the JSON that scripts see, for tests that assert on it or change it."""

from __future__ import annotations

from typing import Any

from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.folder import JobFolder


def status_json(folder: JobFolder) -> dict[str, Any]:
    """As it is; {} where there is none that makes sense."""
    status = folder.read_status()
    return status.as_json() if status else {}


def refreshed_json(folder: JobFolder) -> dict[str, Any]:
    """Taken over first, where its supervisor was killed; "foreign" says why it is not the user's own."""
    status = take_over(folder)
    return status.as_json() | ({"foreign": status.foreign} if status.foreign else {}) if status else {}


def write_status_json(folder: JobFolder, found: dict[str, Any]) -> None:
    """Whatever it says."""
    folder.write_json(folder.status_file, found)
