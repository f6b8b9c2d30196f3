"""The index of all runs of this user, in the state folder of the user: one line per run, appended at its start.

Runs whose folder is gone are passed over; nothing of it is ever an error, for an index is only a way to find what lies elsewhere.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.files import is_file
from dstui.run.folder import RUNS_FOLDER, JobFolder
from dstui.run.status import rebuilt, refresh


def index_file() -> Path:
    """Where the index lies."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "runs.jsonl"


def remember(folder: JobFolder, name: str, started: str) -> None:
    """Add a run. A state folder that cannot be written costs the entry, not the run."""
    line = json.dumps({"folder": str(folder.path), "name": name, "started": started}) + "\n"
    with suppress(OSError):
        file = index_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())  # one write: two runs that start at once do not mix
        finally:
            os.close(fd)


def folders() -> list[JobFolder]:
    """The runs that are still there, oldest first: those of the index, and those in dstui_runs of the current folder."""
    found: dict[Path, None] = {}
    with suppress(OSError):
        for line in index_file().read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                found[Path(json.loads(line)["folder"])] = None
    with suppress(OSError):
        found.update(dict.fromkeys(sorted((Path.cwd() / RUNS_FOLDER).iterdir())))
    runs = [((folder.read_status() or rebuilt(folder)).get("started"), folder) for folder in map(JobFolder, found)]
    return [folder for _, folder in sorted(((begun, folder) for begun, folder in runs if begun), key=lambda run: str(run[0]))]


def runs() -> list[dict[str, Any]]:
    """Every run's status with its folder, brought up to date first; oldest first."""
    return [{**refresh(folder), "folder": str(folder.path)} for folder in folders()]


def is_job(folder: JobFolder) -> bool:
    """Whether a folder is a job's; its status may be lost."""
    return is_file(folder.status_file) or is_file(folder.launch_file)


def find(name: str = "") -> JobFolder:
    """A run by its folder, its name or an unambiguous beginning of that; without one, the latest. LookupError says what is wrong."""
    if name and is_job(given := JobFolder(name)):
        return given
    known = folders()
    if not known:
        raise LookupError("There is no run yet: dstui --headless PLAN starts one")
    if not name:
        return known[-1]
    wanted = name.rstrip("/").rpartition("/")[2]
    found = [folder for folder in known if folder.name == wanted] or [folder for folder in known if folder.name.startswith(wanted)]
    if not found:
        raise LookupError(f"There is no run called {name}. dstui runs lists them; the latest is {known[-1].name}")
    if len(found) > 1:
        raise LookupError(f"{name} may be {', '.join(folder.name for folder in found[:-1])} or {found[-1].name}: write more of the name")
    return found[0]
