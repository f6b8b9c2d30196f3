"""The state of the user's jobs in SLURM: one squeue every ten seconds for all jobs, however many runs and terminals are open."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from dstui.base.text import sanitise
from dstui.jobs.queue.answers import ANSWERS, cached_answer, forget_answer, run_slurm
from dstui.jobs.queue.states import SlurmState, describe_reason, state_of

JOBS, PAUSE = "jobs", 10.0
"""The name of the cached answer, and the number of seconds for which it is used."""
ACCOUNTED, REMEMBERED = 60.0, 30
"""The number of seconds for which an answer of the accounting is used, and the number of days that it covers."""
COLUMNS = "%A|%T|%S|%N|%r"
"""The columns of squeue: job number, state, (estimated) start, nodes, reason."""
FORGOTTEN = "FORGOTTEN"
"""The state of a job that SLURM no longer knows: it ended minutes ago, and there is no accounting."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """What SLURM reports about one job."""

    state: str
    start: str = ""
    nodes: str = ""
    reason: str = ""
    place: str = ""
    """The job's position in the queue, counted from 1; "0" or "" if it is not known."""

    @property
    def meaning(self) -> SlurmState:
        """The meaning of the job's state."""
        return state_of(self.state)

    @property
    def words(self) -> str:
        """The job's position in the queue, in words."""
        if self.meaning.says or self.meaning.means != "queued":
            return self.meaning.says
        estimate = f"; estimated start {self.start.replace('T', ' ')}" if self.start[:1].isdigit() else ""
        place = f"; {ordinal(int(self.place))} in line" if self.place.isdigit() and int(self.place) > 1 else ""
        return sanitise(describe_reason(self.reason) + estimate + place)


def ordinal(number: int) -> str:
    """Format a number as `1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def look(job: str, *, fresh: bool = False) -> QueuedJob | None:
    """Return what SLURM reports about a job, or None if it does not answer. If `fresh`, ask now instead of using a cached answer."""
    found = cached_answer(JOBS, PAUSE, _asked, fresh=fresh)
    facts = found.get(job)
    if facts is None and found.get("answered"):
        facts = cached_answer("accounting", ACCOUNTED, _accounted).get(job) or [FORGOTTEN]
    return QueuedJob(*map(str, facts)) if facts else None


def forget() -> None:
    """Delete the cached answer about jobs, because a job has just been submitted."""
    forget_answer(JOBS)


def _asked() -> dict[str, Any]:
    """Ask squeue for all jobs of the user. The result has the key "answered" if squeue answered."""
    text = run_slurm(["squeue", f"--user={os.geteuid()}", "--states=all", "--noheader", f"--format={COLUMNS}"])
    if text is None:
        return {"answered": False}
    jobs = {row[0]: row[1:] for line in text.splitlines() if len(row := line.split("|", 4)) == 5}
    places = _places() if any(facts[0] == "PENDING" for facts in jobs.values()) else {}
    return {"answered": True, **{job: [*facts, str(places.get(job, 0))] for job, facts in jobs.items()}}


def _places() -> dict[str, int]:
    """Return job -> its position among the waiting jobs of its partition, as far as the user may see them."""
    text = run_slurm(["squeue", "--states=PENDING", "--noheader", "--sort=-p", "--format=%A|%P"]) or ""
    counts, places = dict[str, int](), dict[str, int]()
    for line in text.splitlines():
        job, _, partition = line.partition("|")
        counts[partition] = places[job] = counts.get(partition, 0) + 1
    return places


def _accounted() -> dict[str, Any]:
    """Ask the accounting for the user's jobs of the last days; return an empty mapping if there is no accounting."""
    if shutil.which("sacct") is None:
        return {"answered": False}
    days = ["--allocations", f"--user={os.geteuid()}", f"--starttime=now-{REMEMBERED}days"]
    text = run_slurm(["sacct", "--noheader", "--parsable2", *days, "--format=JobIDRaw,State,Start,NodeList,Reason"]) or ""
    return {"answered": True, **{row[0]: row[1:] for line in text.splitlines() if len(row := line.split("|", 4)) == 5}}


def controller_facts(job: str) -> dict[str, str]:
    """Return the output of `scontrol show job` (JobState, Reason, Restarts, …), or an empty mapping if it does not answer."""
    words = (run_slurm(["scontrol", "--oneliner", "show", "job", job]) or "").split()
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def cancel(job: str) -> str:
    """Cancel a job. Return the reason if that failed, otherwise ""."""
    try:
        ran = subprocess.run(["scancel", job], stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"scancel {job}: {error}"
    return sanitise(ran.stderr.decode(errors="replace").strip()) if ran.returncode else ""
