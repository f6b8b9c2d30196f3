"""Ask SLURM's commands: the states of the user's jobs, their meaning, and the offers of the cluster.

All terminals and runs of a user share each answer, which is cached in a file under a lock: one squeue every ten seconds for all jobs, and
the offers at most every five minutes.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import open_regular, read_json, replace_regular
from dstui.base.text import sanitise

if TYPE_CHECKING:
    from dstui.machine.slurm_offers import SlurmOffers

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


Means = Literal["queued", "running", "ended", "failed", "stopped"]
"""queued: waits (again); running: has its nodes, and status.json is valid; ended: as the ranks' records say; failed, stopped: ended by
SLURM."""


@dataclass(frozen=True, slots=True)
class SlurmState:
    """The meaning of one state of SLURM."""

    means: Means
    exit_code: int | None = None
    """The job's exit status if SLURM ended it; None if that of the ranks counts."""
    says: str = ""
    """A description, without a full stop."""


TIME_OVER = 124
"""The exit status after the time limit, as in timeout(1)."""
KILLED, ENDED = 128 + 9, 128 + 15

STATES: Mapping[str, SlurmState] = {
    "PENDING": SlurmState("queued"),
    "REQUEUED": SlurmState("queued"),
    "REQUEUE_HOLD": SlurmState("queued", says="it was queued again and is held: scontrol release lets it start"),
    "REQUEUE_FED": SlurmState("queued"),
    "SPECIAL_EXIT": SlurmState("queued", says="it was queued again and is held: scontrol release lets it start"),
    "RESV_DEL_HOLD": SlurmState("queued", says="its reservation was deleted: scontrol release lets it start without one"),
    "CONFIGURING": SlurmState("running", says="its nodes are started"),
    "RUNNING": SlurmState("running"),
    "RESIZING": SlurmState("running"),
    "SIGNALING": SlurmState("running"),
    "SUSPENDED": SlurmState("running", says="SLURM has suspended it"),
    "STOPPED": SlurmState("running", says="SLURM has suspended it"),
    "STAGE_OUT": SlurmState("running"),
    "COMPLETING": SlurmState("running"),
    "COMPLETED": SlurmState("ended"),
    "FAILED": SlurmState("ended"),
    "FORGOTTEN": SlurmState("ended", says="SLURM no longer knows it"),
    "BOOT_FAIL": SlurmState("failed", 1, "a node did not start: launch it again"),
    "CANCELLED": SlurmState("stopped", ENDED, "it was cancelled by scancel, not by dstui"),
    "DEADLINE": SlurmState("failed", TIME_OVER, "its deadline passed before it ended"),
    "NODE_FAIL": SlurmState("failed", 1, "a node of it failed: launch it again, or let run.restarts queue it again"),
    "OUT_OF_MEMORY": SlurmState("failed", KILLED, "it used more memory than it had requested: raise cluster.slurm.mem"),
    "PREEMPTED": SlurmState("failed", ENDED, "a job of higher priority took its nodes: launch it again, or set run.restarts"),
    "REVOKED": SlurmState("failed", 1, "another cluster of the federation started it"),
    "TIMEOUT": SlurmState("failed", TIME_OVER, "its time was up: raise cluster.slurm.time, or let run.restarts queue it again"),
}
UNKNOWN = SlurmState("running", says="dstui does not know this state of SLURM")

NEVER = "it can never start like this: stop it, and change"
REASONS: Mapping[str, str] = {
    "Resources": "waits for free nodes",
    "Priority": "waits for jobs of higher priority",
    "BeginTime": "waits for the time at which it may begin",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": f"{NEVER} its dependency, which can no longer be met",
    "JobHeldUser": "is held: scontrol release lets it start",
    "JobHeldAdmin": "is held by an administrator",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "waits for nodes that are down, drained or reserved",
    "Nodes required for job are DOWN": "waits for nodes that are down, drained or reserved",  # the beginning of a sentence of slurmctld's
    "PartitionDown": "waits for its partition, which is down",
    "PartitionInactive": "waits for its partition, which is inactive",
    "PartitionNodeLimit": f"{NEVER} cluster.num_nodes: its partition has fewer nodes for one job",
    "PartitionTimeLimit": f"{NEVER} cluster.slurm.time: its partition allows less",
    "PartitionConfig": f"{NEVER} cluster.slurm.time, cluster.num_nodes or cluster.slurm.partition: its partition does not allow them",
    "AccountNotAllowed": f"{NEVER} cluster.slurm.account: its partition does not admit it",
    "InvalidAccount": f"{NEVER} cluster.slurm.account: there is no such account",
    "InvalidQOS": f"{NEVER} cluster.slurm.qos: there is no such QOS",
    "BadConstraints": f"{NEVER} cluster.slurm.constraint: no node has these features",
    "launch failed requeued held": "could not be started on its nodes and is held: scontrol release tries again",
}


def state_of(word: str) -> SlurmState:
    """Return the meaning of a state. squeue writes `CANCELLED by 1000`, and flags behind a comma or a plus."""
    return STATES.get(word.replace(",", " ").replace("+", " ").partition(" ")[0], UNKNOWN)


def describe_reason(reason: str) -> str:
    """Return in words why a job waits, including SLURM's own term."""
    name = reason.strip("()").partition(",")[0].strip()
    if not name or name == "None":
        return "waits for the scheduler"
    if name in REASONS:
        return f"{REASONS[name]} ({name})"
    if name.startswith(("QOS", "Assoc", "Max")):
        return f"waits for a limit of your account or QOS ({name})"
    return f"waits: {name}"


PARTITION = re.compile(r"\w[\w.-]{0,99}")
OFFERS_PAUSE = 300.0
"""The number of seconds for which an answer is used: partitions seldom change."""


def slurm_offers() -> SlurmOffers | None:
    """Return the offers of the cluster, or None if this host has no SLURM or SLURM does not answer."""
    if shutil.which("sinfo") is None:
        return None
    from dstui.machine.slurm_offers import read_offers  # the state of a job does not need it

    found = cached_answer("offers", OFFERS_PAUSE, _ask)
    texts = [found.get(name) for name in ("partitions", "nodes", "associations")]
    partitions, nodes, associations = (text if isinstance(text, str) else "" for text in texts)
    return read_offers(partitions, nodes, associations) if partitions else None


def _ask() -> dict[str, Any]:
    from dstui.machine.slurm_offers import ASSOCIATIONS, SINFO

    words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={os.geteuid()}", f"format={ASSOCIATIONS}"]
    partitions = run_slurm(["scontrol", "--oneliner", "show", "partition"])
    if not partitions:
        return {"partitions": ""}
    nodes = run_slurm(["sinfo", "--noheader", f"--format={SINFO}"])
    return {"partitions": partitions, "nodes": nodes or "", "associations": run_slurm(words) or ""}


def nodes_of_partition(name: str) -> list[str]:
    """Return the nodes of a partition of this host's cluster; empty if there is no SLURM or no such partition."""
    if shutil.which("sinfo") is None or not PARTITION.fullmatch(name):
        return []
    return sorted(set((run_slurm(["sinfo", "--noheader", "--Node", f"--partition={name}", "--format=%N"]) or "").split()))


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
    """SLURM's report about one job."""

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
