"""Making a job folder: where it goes, what it is called, and that nothing is ever reused."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from dstui.base.files import FileProblem, reason
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder

LONGEST = 100
"""Characters of a Plan's name that its job folders get: a folder's own name has 255 bytes at most."""


def create(name: str, now: datetime, run_dir: Path | None = None) -> JobFolder:
    """Return a new, empty job folder: `run_dir` itself, else dstui_runs/NAME-YYYYMMDD-HHMMSS (-2 and so on) in the current folder.

    It is its owner's alone, for it will hold environments and arguments. FileProblem where that is not possible; a folder that holds
    anything is refused.
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
    raise FileProblem(f"{base} holds a thousand runs of this second already")


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
