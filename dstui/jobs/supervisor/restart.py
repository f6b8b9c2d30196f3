"""Whether and how a failed job is started again: how often, after which pause, and from which checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dstui.jobs.store.records import LaunchRecord

CHECKPOINT = "{checkpoint}"
MARKS = ("latest", "trainer_state.json")
"""Files that DeepSpeed and the Trainer write last into a folder from which they can resume."""
DEPTH = 4
"""Levels below the working directory, or below a folder that an argument names, that are searched for a checkpoint."""
PASSED_OVER = ("dstui_runs", "node_modules", "__pycache__", "wandb", "site-packages")


def restart_arguments(launch: LaunchRecord, since: float) -> tuple[list[str], str]:
    """Return the arguments that a new attempt appends, and a text about its starting point.

    Only a checkpoint that this job has written since `since` (seconds since the epoch) counts. Without one, arguments that refer to it are
    all left out.
    """
    words = list(launch.restarts.args)
    if not any(CHECKPOINT in word for word in words):
        return words, "as before" if not words else f"with {' '.join(words)}"
    found = latest_checkpoint(places(launch), since)
    if found is None:
        return [], "from the beginning: there is no checkpoint yet"
    return [word.replace(CHECKPOINT, str(found)) for word in words], f"from {found}"


def places(launch: LaunchRecord) -> list[Path]:
    """Return folders that may contain a job's checkpoints: its working directory, and those that its arguments name."""
    workdir = Path(launch.workdir)
    values = [word.rpartition("=")[2] for word in launch.args]
    return [workdir, *(path for value in values if value and (path := workdir / value).is_dir())]


def latest_checkpoint(roots: Iterable[Path], since: float) -> Path | None:
    """Return the folder that was completed last, at or after `since`; None if there is none."""
    found = [(mark.stat().st_mtime, mark.parent) for root in roots for mark in _marks(root, DEPTH)]
    return max(((time, path) for time, path in found if time >= since), default=(0.0, None))[1]


def _marks(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files that mark a folder as a checkpoint."""
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError):
        entries = list(os.scandir(folder))
    for entry in entries:
        with suppress(OSError):
            if entry.name in MARKS and entry.is_file():
                yield Path(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name not in PASSED_OVER:
                yield from _marks(Path(entry.path), depth - 1)
