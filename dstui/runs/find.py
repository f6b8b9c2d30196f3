"""Find the runs for a table: the user's own and those of the current folder, or all in given folders, whoever owns them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from dstui.base.files import FileProblem, reason
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder
from dstui.jobs.store.index import is_job, runs
from dstui.jobs.store.status import current_status
from dstui.logs.time_parsing import DAY, UNITS
from dstui.runs.kept import Kept
from dstui.runs.run import Run

DEEPEST = 4
"""Levels below a given folder that are searched: /shared/USER/PROJECT/dstui_runs/NAME."""
MAX_FOLDERS = 50_000
"""Folders that are searched at most: a folder with a data set is not a folder of runs."""


def find_runs(kept: Kept, places: Sequence[str] = (), since: float = 0.0) -> list[Run]:
    """Return the runs that were started after `since` (seconds since the epoch), oldest first. Raises FileProblem for an invalid place."""
    below = dict.fromkeys(folder for place in places for folder in _below(place))
    found = [(folder, status) for folder in below if (status := current_status(folder))] if places else runs()
    listed = [Run(folder, status, kept) for folder, status in found]
    return sorted((run for run in listed if (run.status.started or 0.0) >= since), key=lambda run: run.status.started or 0.0)


def _below(place: str) -> Iterator[JobFolder]:
    """Yield the jobs in a folder. Links are not followed, and unreadable folders are skipped."""
    try:
        os.scandir(place).close()
    except (OSError, ValueError) as error:
        raise FileProblem(f"{place}: {reason(error) if isinstance(error, OSError) else 'no folder'}") from None
    level, looked = [Path(os.path.realpath(place))], 0
    for _ in range(DEEPEST + 1):
        deeper: list[Path] = []
        for path in level:
            looked += 1
            if is_job(folder := JobFolder(path)):
                yield folder
            elif looked < MAX_FOLDERS:
                with suppress(OSError), os.scandir(path) as entries:
                    inside = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
                    deeper += [Path(entry.path) for entry in inside if not entry.name.startswith(".")]
        level = sorted(deeper, key=lambda path: path.name != RUNS_FOLDER)


def parse_since(text: str, now: float) -> float:
    """Parse `7d`, `12h`, `30m` or `2026-11-23` to seconds since the epoch. Raises ValueError with a sentence."""
    ago = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smhdw])", text.strip())
    if ago:
        return now - float(ago[1]) * {**UNITS, "w": 7 * DAY}[ago[2]]
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text.strip()).timestamp()
    raise ValueError(f"{text[:40]} is not a time; write how long ago (7d, 12h, 30m) or a day (2026-11-23)")
