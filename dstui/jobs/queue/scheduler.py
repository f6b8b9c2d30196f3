"""What SLURM says of the user's jobs: one squeue for all of them, ten seconds apart however many runs and terminals are open."""

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
"""The name of the answer, and seconds between two questions."""
ACCOUNTED, REMEMBERED = 60.0, 30
"""Seconds between two questions to the accounting, and the days that it is asked about."""
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
    place: str = ""
    """Its place in line, from 1; "0" or "" where that is not known."""

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
        place = f"; {ordinal(int(self.place))} in line" if self.place.isdigit() and int(self.place) > 1 else ""
        return sanitise(describe_reason(self.reason) + estimate + place)


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def look(job: str, *, fresh: bool = False) -> QueuedJob | None:
    """Return what SLURM says of a job; None where it does not answer. `fresh`: asked now, by whoever must be sure."""
    found = cached_answer(JOBS, PAUSE, _asked, fresh=fresh)
    facts = found.get(job)
    if facts is None and found.get("answered"):
        facts = cached_answer("accounting", ACCOUNTED, _accounted).get(job) or [FORGOTTEN]
    return QueuedJob(*map(str, facts)) if facts else None


def forget() -> None:
    """Forget what SLURM said: another job has just been submitted."""
    forget_answer(JOBS)


def _asked() -> dict[str, Any]:
    """Ask squeue for all jobs of the user; the key "answered" is there where it did."""
    text = run_slurm(["squeue", f"--user={os.geteuid()}", "--states=all", "--noheader", f"--format={COLUMNS}"])
    if text is None:
        return {"answered": False}
    jobs = {row[0]: row[1:] for line in text.splitlines() if len(row := line.split("|", 4)) == 5}
    places = _places() if any(facts[0] == "PENDING" for facts in jobs.values()) else {}
    return {"answered": True, **{job: [*facts, str(places.get(job, 0))] for job, facts in jobs.items()}}


def _places() -> dict[str, int]:
    """Return job -> its place among those that wait in its partition, as far as the user may see them."""
    text = run_slurm(["squeue", "--states=PENDING", "--noheader", "--sort=-p", "--format=%A|%P"]) or ""
    counts, places = dict[str, int](), dict[str, int]()
    for line in text.splitlines():
        job, _, partition = line.partition("|")
        counts[partition] = places[job] = counts.get(partition, 0) + 1
    return places


def _accounted() -> dict[str, Any]:
    """Ask the accounting for the user's jobs of the last days; empty where there is none."""
    if shutil.which("sacct") is None:
        return {"answered": False}
    days = ["--allocations", f"--user={os.geteuid()}", f"--starttime=now-{REMEMBERED}days"]
    text = run_slurm(["sacct", "--noheader", "--parsable2", *days, "--format=JobIDRaw,State,Start,NodeList,Reason"]) or ""
    return {"answered": True, **{row[0]: row[1:] for line in text.splitlines() if len(row := line.split("|", 4)) == 5}}


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
