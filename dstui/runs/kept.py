"""A cache of what ended runs say: 2,000 of them are listed in a second, and no log is read twice.

An entry is valid while the run's status.json and plan.yaml are unchanged. A missing, damaged or read-only cache costs time, never a run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui import __version__
from dstui.base.regular_files import MAX_READ, json_object, read_regular, replace_regular
from dstui.jobs.store.folder import JobFolder

FORM = 2
"""The version of an entry. Increase it when a part changes its meaning."""
MAX_RUNS = 10_000
MAX_OF_A_PART = 32 << 10
"""Bytes of JSON of one part. A larger part is read again each time."""


class Kept:
    """The cache of one listing. `save` writes what is new."""

    def __init__(self) -> None:
        self._path = _path()
        self._runs = _read(self._path)
        self._new = False

    def part(self, folder: JobFolder, name: str, read: Callable[[], Any], *, ended: bool) -> Any:
        """Return one part of what a run says, as JSON: from the cache, else by `read`. It is stored if the run has ended."""
        if not ended:
            return read()
        place, stamp = str(folder.path), _stamp(folder)
        entry = self._runs.get(place)
        if not isinstance(entry, dict) or entry.get("stamp") != stamp:
            entry = {"stamp": stamp}
        if name not in entry:
            found = read()
            if len(json.dumps(found)) > MAX_OF_A_PART:
                return found
            entry[name] = found
            self._runs.pop(place, None)  # moves it to the end: the most recently used entries are kept
            self._runs[place] = entry
            self._new = True
        return entry[name]

    def save(self) -> None:
        """Write what is new, if possible."""
        if not self._new:
            return
        self._new = False
        runs = dict(list(self._runs.items())[-MAX_RUNS:])
        with suppress(OSError):
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            replace_regular(self._path, json.dumps({"by": [__version__, FORM], "runs": runs}).encode())


def _path() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("dstui") / "runs.json"


def _read(path: Path) -> dict[str, Any]:
    """Return what the same release of dstui has written; another release may parse more."""
    with suppress(OSError):
        found: Mapping[str, Any] = json_object(read_regular(path, 0, 4 * MAX_READ))
        runs = found.get("runs")
        if found.get("by") == [__version__, FORM] and isinstance(runs, dict):
            return runs
    return {}


def _stamp(folder: JobFolder) -> list[int]:
    """Return values that change whenever one of the files is written."""
    stamp: list[int] = []
    for path in (folder.status_file, folder.path / "plan.yaml"):
        with suppress(OSError):
            found = os.lstat(path)
            stamp += [found.st_ino, found.st_size, found.st_mtime_ns]
    return stamp
