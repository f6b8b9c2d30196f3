"""Supplement a diagnosis by what the supervisor noted: samples of the host's resources, the kernel's log, and silent ranks.

The samples at the launch and at a rank's end show whether memory, /dev/shm or a disk ran out. A fact that proves a cause becomes a hit,
like a line of a log. One that contradicts a cause is noted beside it. A SIGKILL leaves no trace in other logs, but /dev/kmsg names each
killed process, for those who may read it (usually root). Silent ranks are noted for jobs that hang or have hung.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.diagnosis.findings import FACTS, Collected, Hit
from dstui.diagnosis.signatures import BY_ID
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import KILLED, Ranks, ranks_in_words
from dstui.jobs.store.records import JobStatus
from dstui.plan.finding import Fix

FULL = 0.01
"""A file system counts as full if less than this share is left: the writer may have cleaned up after itself."""
PLENTY = 1 << 30
"""Bytes of free memory that rule out a shortage on the host."""
BUS_ERROR = 128 + 7


@dataclass(frozen=True, slots=True)
class FactsEvent:
    """A line of events.jsonl with facts."""

    line: int
    facts: Mapping[str, Any]

    def number(self, name: str) -> int | None:
        """Return a count or a number of bytes; None if it could not be read."""
        value = self.facts.get(name)
        return value if isinstance(value, int) else None

    def least(self, name: str) -> int | None:
        """Return the minimum that was free since the launch."""
        value = (self.facts.get("least") or {}).get(name, self.facts.get(name))
        return value if isinstance(value, int) else None


def add_facts(found: Collected, folder: JobFolder, ranks: Ranks) -> None:
    """Add a hit for each cause that the facts prove, and a remark on each that they contradict."""
    events = [FactsEvent(line, event) for line, event in folder.numbered_events() if event.get("event") == "facts"]
    events = [event for event in events if event.facts.get("attempt") == ranks.attempt]
    ends = {number: event for event in events for number in event.facts.get("ranks") or () if number in ranks.ranks}
    if not ends or events[0].facts.get("ranks"):
        return  # nothing to compare with
    found.files.append(str(folder.events_file))
    facts = ConfirmedFacts(found, ranks, events[0], ends)
    facts.memory()
    facts.shared_memory()
    facts.disks()


@dataclass(frozen=True, slots=True)
class ConfirmedFacts:
    """The facts at the launch and at the end of each rank."""

    found: Collected
    ranks: Ranks
    launch: FactsEvent
    ends: Mapping[int, FactsEvent]

    def memory(self) -> None:
        """Check the kernel's kill counts: in the rank's own cgroup, in the job's, or on this host."""
        last = list(self.ends.values())[-1]
        own = sum((event.facts.get("killed") or {}).get(str(rank), 0) for rank, event in self.ends.items())
        counted, host = own + (self._risen(last, "oom_kill") or 0), self._risen(last, "host_oom_kill") or 0
        many = counted or host
        where = "of the job's cgroup for lack of memory" if counted else "of this host for lack of memory while the job ran"
        for rank in self._killed()[:many]:
            text = f"the kernel killed {many} process{'es' if many > 1 else ''} {where}{_limits(self.ends[rank]) if counted else ''}"
            self._hit("OOM-HOST", rank, text, sure=bool(counted))
        if self._risen(last, "oom_kill") is None or many:
            return
        reported = "the kernel counted no such kill, neither in the job's cgroup nor on this host"
        self.found.ruled_out.add("OOM-HOST")
        self.found.remarks["KILLED-UNKNOWN"] = f"It was not a lack of memory: {reported}."
        free = last.least("memory_available")
        if free is not None and free > PLENTY:
            why = "the allocation by itself was too large, or a limit that the script has set refused it"
            self.found.remarks["ALLOC-REFUSED"] = f"The host always had {size(free)} of memory left, and {reported}: {why}."

    def shared_memory(self) -> None:
        """Check whether /dev/shm was full when a rank died of a bus error."""
        named = {hit.rank for hit in self.found.hits if hit.signature.id == "SIGBUS-SHM"}
        for rank, event in self.ends.items():
            total, free = event.number("shm_total"), event.least("shm_free")
            if not total or free is None or (self.ranks.ranks[rank].exit_code != BUS_ERROR and rank not in named):
                continue
            reported = f"{size(free)} of {size(total)} free"
            if free <= total * FULL:
                self._hit("SIGBUS-SHM", rank, f"shared memory (/dev/shm) was full: {reported}")
            else:
                text = f"/dev/shm was not full (always {reported}): look for a mapped file on a disk that is full or broken."
                self.found.remarks["SIGBUS-SHM"] = text

    def disks(self) -> None:
        """Check the free space in the folders of the job."""
        least = next(iter(self.ends.values())).facts.get("least") or {}
        reported = [f"{size(free)} in {place}" for place, free in (least.get("disk_free") or {}).items() if isinstance(free, int)]
        if reported:
            self.found.remarks["CKPT-DISK"] = f"Of the job's own folders there was always left: {', '.join(reported)}."

    def _killed(self) -> list[int]:
        """Return ranks that died of SIGKILL, in order, and those whose data-loader worker did."""
        killed = [rank for rank in self.ends if self.ranks.ranks[rank].exit_code == KILLED]
        workers = [hit.rank for hit in self.found.hits if hit.signature.id == "DL-WORKER" and "Killed" in hit.text]
        killed.sort(key=lambda rank: self.found.ended.get(rank, 0.0))
        return [*killed, *(rank for rank in workers if rank in self.ends and rank is not None)]

    def _risen(self, end: FactsEvent, name: str) -> int | None:
        """Return how much a count has risen since the launch."""
        before, after = self.launch.number(name), end.number(name)
        return None if before is None or after is None else max(after - before, 0)

    def _hit(self, signature: str, rank: int, text: str, *, sure: bool = True) -> None:
        place = (len(self.found.files) - 1, self.ends[rank].line)
        self.found.hits.append(Hit(BY_ID[signature], place, text, FACTS, rank, self.ranks.ranks[rank].host, sure=sure))


def _limits(event: FactsEvent) -> str:
    """Describe the cgroup's limit and its peak use."""
    reported = [f"{word} {size(value)}" for word in ("limit", "peak") if (value := event.number(f"memory_{word}")) is not None]
    return f" ({', '.join(reported)})" if reported else ""


def size(count: int) -> str:
    """Format a size: 3.0 GiB, 64 MiB, 512 KiB."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {unit}"
    return f"{count / 1024:.3g} KiB"


KMSG = "/dev/kmsg"
RECORD = 8192
"""The longest record of the kernel's log; each read returns one."""
MAX_RECORDS = 50_000
KILL_RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;.*(?:[Oo]ut of memory|oom).*: Killed process (\d+) \(")
NEAR = 60.0
"""Seconds between the kernel's message and the shim's record: process ids are reused."""


def killed_for_memory(pid: int, ended: float) -> str | None:
    """Return the line in which the kernel reports that it killed this process at that time; None if there is none or it is unreadable."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return find_kill(_records(), pid, ended - booted)


def find_kill(records: Iterable[str], pid: int, ended: float) -> str | None:
    """Return the record of a kill of this process; `ended`: seconds since boot."""
    for record in records:
        found = KILL_RECORD.match(record)
        if found and int(found[2]) == pid and abs(int(found[1]) / 1e6 - ended) < NEAR:
            return record.partition(";")[2].strip()
    return None


def _records() -> Iterator[str]:
    try:
        fd = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(MAX_RECORDS):
            with suppress(BrokenPipeError):  # overwritten before it was read
                yield os.read(fd, RECORD).decode("utf-8", "replace")
    except OSError:
        return  # no more records
    finally:
        os.close(fd)


HANG = "HANG"
OPEN = ("HANG-DESYNC",)
"""Causes that, like all symptoms, leave open which rank did not reach a collective, and why."""
LAST = 60.0
"""Seconds before the end of a job in which a silence may have ended with the messages of its failure: a timeout prints a traceback."""
MAX_PLACES = 8
"""Sentences about stacks that a diagnosis shows."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The latest silence of an attempt, from the last line of any rank on."""

    since: float
    """Seconds since the epoch."""
    evidence: tuple[Evidence, ...]
    """The event itself, and that of the stacks that were read then."""
    missing: tuple[int, ...] = ()
    """Ranks that were behind the others, which wait for them."""
    places: tuple[str, ...] = ()
    """The rank that was late and for what, and the place of each rank, from the stacks."""
    at: str = ""
    """Code location of the first missing rank."""
    over: float | None = None
    """The time at which the ranks continued; None if they did not."""

    def lasted(self, until: float) -> str:
        """Format the duration: `12 min`."""
        seconds = max((self.over or until) - self.since, 0.0)
        return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The advice if it is known where the missing rank was."""
        if not self.at:
            return ()
        return (Fix(f"See why rank {self.missing[0]} stayed in {self.at}: a file, a lock, a download, a loop; or why only it went there"),)

    @property
    def whom(self) -> str:
        """Describe the missing ranks, as the end of a sentence."""
        if self.places:
            return f": {'; '.join(place.rstrip('.') for place in self.places)}"
        return f"; {ranks_in_words(self.missing)} had not come as far as the others" if self.missing else ""


def last_silence(folder: JobFolder, attempt: int) -> Silence | None:
    """Return the latest silence of an attempt."""
    found: Silence | None = None
    for line, event in folder.numbered_events():
        if event.get("attempt") != attempt:
            continue
        with suppress(KeyError, TypeError, ValueError):
            if event.get("event") == "silence":
                text = sanitise(str(event.get("text") or "no rank has written anything"))
                found = Silence(float(event["since"]), (Evidence(str(folder.events_file), line, text),), _ranks(event.get("missing")))
            elif event.get("event") == "silence_over" and found is not None:
                found = replace(found, over=float(event["t"]))
            elif event.get("event") == "stacks" and found is not None and found.over is None:
                places = tuple(sanitise(str(text)) for text in event["lines"][:MAX_PLACES])
                late = _ranks(event.get("late"))
                shown = Evidence(str(folder.events_file), line, "; ".join(place.rstrip(".") for place in places), late[0] if late else None)
                found = replace(
                    found,
                    missing=late or found.missing,
                    places=places,
                    at=sanitise(str(event.get("at") or "")) if late else "",
                    evidence=(found.evidence[0], shown),
                )
    return found


def _ranks(found: Any) -> tuple[int, ...]:
    return tuple(number for number in found or () if type(number) is int)


def with_silence(diagnosis: Diagnosis, folder: JobFolder, status: JobStatus | None) -> Diagnosis:
    """Add to the diagnosis of a job that its ranks are silent, or were silent before it was stopped or gave up."""
    silence = last_silence(folder, status.attempt) if status else None
    if status is None or silence is None:
        return diagnosis
    evidence = (*diagnosis.evidence, *silence.evidence)
    if not status.final:
        if silence.over is not None:
            return diagnosis
        title = f"The job still runs, and no rank has written anything for {silence.lasted(time.time())}{silence.whom}"
        return replace(diagnosis, title=title, evidence=evidence, fixes=silence.fixes, could_be=(HANG,))
    ended = status.ended or time.time()
    if diagnosis.kind not in ("stop", "failure") or (silence.over is not None and ended - silence.over > LAST):
        return diagnosis
    note = f"Before that no rank had written anything for {silence.lasted(ended)}{silence.whom}."
    diagnosis = replace(diagnosis, notes=(note, *diagnosis.notes))
    if diagnosis.kind == "stop":
        could_be = tuple(dict.fromkeys((*diagnosis.could_be, HANG)))
        return replace(diagnosis, evidence=evidence, fixes=silence.fixes or diagnosis.fixes, could_be=could_be)
    if diagnosis.cause is not None and BY_ID[diagnosis.cause].role != "symptom" and diagnosis.cause not in OPEN:
        return diagnosis  # an error of its own: the silence before it is only mentioned
    diagnosis = replace(diagnosis, evidence=evidence)
    return _stuck(diagnosis, silence) if silence.at else diagnosis


def _stuck(diagnosis: Diagnosis, silence: Silence) -> Diagnosis:
    """Return a diagnosis of ranks that waited in vain, with the missing rank and its line."""
    signature, rank = BY_ID[HANG], silence.missing[0]
    could_be = [cause for cause in (diagnosis.cause, *diagnosis.could_be) if cause and cause != HANG]
    return replace(
        diagnosis,
        cause=HANG,
        title=f"{signature.title}: {silence.at}",
        why=signature.cause,
        confirm=signature.confirm,
        first_failing_rank=rank,
        ranks=(rank,),
        every_rank=False,
        could_be=tuple(dict.fromkeys(could_be)),
        fixes=silence.fixes,
    )
