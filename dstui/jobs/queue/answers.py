"""Questions to SLURM's commands. All terminals and runs of a user share each answer, which is cached in a file under a lock."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.regular_files import open_regular, read_json, replace_regular

ANSWERS = 20.0
"""The number of seconds that SLURM's controller gets to answer."""


def run_slurm(words: list[str]) -> str | None:
    """Return the output of one of SLURM's commands, or None if it failed, does not exist or did not answer."""
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.decode(errors="replace") if ran.returncode == 0 else None


def answer_file(name: str) -> Path:
    """Return the path of the cached answer called `name`."""
    from platformdirs import user_cache_path

    return user_cache_path("dstui") / f"slurm_{name}.json"


def forget_answer(name: str) -> None:
    """Delete a cached answer, because something has just changed."""
    with suppress(OSError):
        answer_file(name).unlink()


def cached_answer(name: str, pause: float, ask: Callable[[], Mapping[str, Any]], *, fresh: bool = False) -> Mapping[str, Any]:
    """Return an answer that is at most `pause` seconds old; only one process at a time asks. If `fresh`, ask in any case."""
    file = answer_file(name)
    try:
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        lock = open_regular(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
    except OSError:
        return ask()
    try:
        known = _known(file, pause)
        if known and not fresh:
            return known
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if fresh or not file.exists() else fcntl.LOCK_NB))
        except OSError:
            return _read(file)  # another process is asking now: the previous answer is good enough
        if not fresh and (known := _known(file, pause)):
            return known
        found = ask()
        with suppress(OSError):
            replace_regular(file, json.dumps({"time": time.time(), "answer": found}).encode())
        return found
    finally:
        os.close(lock)


def _known(file: Path, pause: float) -> Mapping[str, Any]:
    """Return the cached answer, or an empty mapping if it is older than `pause` seconds."""
    asked = read_json(file).get("time")
    return _read(file) if isinstance(asked, float) and 0 <= time.time() - asked < pause else {}


def _read(file: Path) -> Mapping[str, Any]:
    answer = read_json(file).get("answer")
    return answer if isinstance(answer, dict) else {}
