"""Query SLURM about the user's jobs: one squeue for all of them, at least ten seconds apart for all runs and terminals.

The answer is in the user's cache, under a lock. Other processes read it there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dstui.base.regular_files import open_regular, read_json, replace_regular
from dstui.base.text import sanitise
from dstui.jobs.queue.states import SlurmState, describe_reason, state_of

PAUSE = 10.0
"""Seconds between two queries."""
ANSWERS = 20.0
"""Seconds for the controller to answer."""
COLUMNS = "%A|%T|%S|%N|%r"
"""Number, state, (estimated) start, nodes, reason."""
FORGOTTEN = "FORGOTTEN"
"""The state of a job that SLURM does not know any more: it ended minutes ago, and there is no accounting."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """SLURM's facts about one job."""

    state: str
    start: str = ""
    nodes: str = ""
    reason: str = ""

    @property
    def meaning(self) -> SlurmState:
        """The meaning of its state."""
        return state_of(self.state)

    @property
    def words(self) -> str:
        """Its position in the queue, in words."""
        if self.meaning.says or self.meaning.means != "queued":
            return self.meaning.says
        estimate = f"; estimated start {self.start.replace('T', ' ')}" if self.start[:1].isdigit() else ""
        return sanitise(describe_reason(self.reason) + estimate)


def look(job: str, *, fresh: bool = False) -> QueuedJob | None:
    """Return SLURM's facts about a job; None if SLURM does not answer. `fresh`: query now, ignoring the cache."""
    found = _jobs(fresh=fresh)
    facts = found.get(job)
    if facts is None and found.get("answered"):
        facts = _accounted(job) or [FORGOTTEN]
    return QueuedJob(*map(str, facts)) if facts else None


def forget() -> None:
    """Delete the cached answer, after another job was submitted."""
    with suppress(OSError):
        _file().unlink()


def _file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("dstui") / "slurm_jobs.json"


def _jobs(*, fresh: bool) -> Mapping[str, Any]:
    """Return job -> its facts, at most PAUSE seconds old. One process at a time queries."""
    file = _file()
    try:
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        lock = open_regular(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
    except OSError:
        return _asked()
    try:
        known = _known(file)
        if known and not fresh:
            return known
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if fresh or not file.exists() else fcntl.LOCK_NB))
        except OSError:
            return _read(file)  # another process is querying: the previous answer is good enough
        if not fresh and (known := _known(file)):
            return known
        found = _asked()
        with suppress(OSError):
            replace_regular(file, json.dumps({"time": time.time(), "jobs": found}).encode())
        return found
    finally:
        os.close(lock)


def _known(file: Path) -> Mapping[str, Any]:
    """Return the cached answer; empty if it is too old."""
    asked = read_json(file).get("time")
    return _read(file) if isinstance(asked, float) and 0 <= time.time() - asked < PAUSE else {}


def _read(file: Path) -> Mapping[str, Any]:
    jobs = read_json(file).get("jobs")
    return jobs if isinstance(jobs, dict) else {}


def _asked() -> dict[str, Any]:
    """Query squeue for all jobs of the user. The key "answered" is present if it answered."""
    words = ["squeue", f"--user={os.geteuid()}", "--states=all", "--noheader", f"--format={COLUMNS}"]
    text = run_slurm(words)
    if text is None:
        return {"answered": False}
    rows = (line.split("|", 4) for line in text.splitlines())
    return {"answered": True, **{row[0]: row[1:] for row in rows if len(row) == 5}}


def _accounted(job: str) -> list[str] | None:
    """Query the accounting for a job that the controller has forgotten; None if there is none or it does not know the job."""
    if shutil.which("sacct") is None:
        return None
    text = run_slurm(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=State,Start,NodeList,Reason"])
    rows = [line.split("|", 3) for line in (text or "").splitlines() if line.count("|") == 3]
    return rows[-1] if rows else None


def controller_facts(job: str) -> dict[str, str]:
    """Return the output of `scontrol show job`: JobState, Reason, Restarts, …; empty if it does not answer."""
    words = (run_slurm(["scontrol", "--oneliner", "show", "job", job]) or "").split()
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def cancel(job: str) -> str:
    """Cancel a job. Return why that failed; "" if it did not."""
    try:
        ran = subprocess.run(["scancel", job], stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"scancel {job}: {error}"
    return sanitise(ran.stderr.decode(errors="replace").strip()) if ran.returncode else ""


def run_slurm(words: list[str]) -> str | None:
    """Return the output of a SLURM command; None if it failed, does not exist or gives no answer."""
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.decode(errors="replace") if ran.returncode == 0 else None
