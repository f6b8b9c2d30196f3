"""Create a job folder: its place and name. Nothing is ever reused."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from dstui.base.files import FileProblem, reason
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder

LONGEST = 100
"""Characters of a Plan's name in the names of its job folders: a folder's name has at most 255 bytes."""


def create(name: str, now: datetime, run_dir: Path | None = None) -> JobFolder:
    """Create an empty job folder: `run_dir` itself, else dstui_runs/NAME-YYYYMMDD-HHMMSS (-2 and so on) in the current folder.

    Only its owner can read it, since it will contain environments and arguments. Raises FileProblem if it cannot be created or is not
    empty.
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
    raise FileProblem(f"{base} already has a thousand runs of this second")


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
