"""Derive facts about ranks and time from the findings: which rank a hit belongs to, which ranks are silent, what came first."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from signal import SIGKILL

from dstui.diagnosis.findings import Ended, Findings, Hit
from dstui.diagnosis.reasoning.last_run import FRAME, keep_last_run
from dstui.diagnosis.reasoning.rank_resolution import NUMBER, count_raising, resolve
from dstui.diagnosis.recognition.activity import bar_advances, is_loop
from dstui.diagnosis.recognition.exits import SIGNAL_CAUSES
from dstui.diagnosis.recognition.labels import rank_in
from dstui.diagnosis.recognition.traces import Raised
from dstui.diagnosis.signatures import BY_ID

ALIVE = 0.05
"""Seconds: a process that takes longer to be ended was alive; for a dead one, terminate and wait return at once."""
NEVER = float("inf")
FEW = 60
"""Lines of a text that may be nothing but the error."""
LAST = 3
"""Lines at the end of a longer text."""
AFTERWARDS = 10
"""Lines that may follow the last message of a failure: of 224 sure causes in published logs, 215 had at most 7 below them."""
SOON = 1000
"""Lines within which a stop is a consequence of the ranks' messages before it."""
SAY_AN_END = ("root", "symptom", "cascade", "stop")
SAME = 80
"""Characters by which a line is recognised again."""
SIBLINGS = (
    "Several ranks found other processes on their GPUs: each rank may have put the model on every GPU (device_map, or .cuda() alone)."
)
OFTEN = 3
"""Equal exceptions that a process logs if it continues after them."""
THIS_HOST = re.compile(r"Pool\(host='(?:127\.\d|localhost|0\.0\.0\.0)")
"""A connection to a server on the same host, in urllib3's words."""
LOST = frozenset({"EOFError", "UnpicklingError", "ConnectionResetError", "BrokenPipeError"})
LINKS = re.compile(r"/multiprocessing/(?:connection|spawn)\.py$")
"""Files of the standard library that read from another process."""
FORCED = "srun: forcing job termination"
"""The message of srun if a signal asks it to end the tasks."""
CRASHES = frozenset({"SIGABRT", "SIGSEGV"})
"""Messages of native code about its own end."""


class FailureContext:
    """The findings with ranks resolved."""

    def __init__(self, found: Findings) -> None:
        self.found = resolve(keep_last_run(found))
        self.found = self._read_in_context()

    def _read_in_context(self) -> Findings:
        """Return the findings with other signatures for hits whose text means something else beside other parts of the log."""
        hits, remarks = self.found.hits, dict(self.found.remarks)
        renamed = dict[int, str]()
        if any(hit.signature.id == "MPIRUN-NOTE" for hit in hits):  # a launcher did start it: only the package is missing
            renamed |= {id(hit): "IMPORT-MISSING" for hit in hits if hit.signature.id == "MPI4PY"}
        busy = [hit for hit in hits if hit.signature.id == "GPU-BUSY" and "Process " in hit.text]
        if len({hit.rank for hit in busy} - {None}) > 1:  # the processes that occupy each rank's GPU are the other ranks of this run
            renamed |= {id(hit): "OOM-GPU" for hit in busy}
            remarks["OOM-GPU"] = SIBLINGS
        folders = [hit for hit in hits if hit.signature.id == "RACE-FS" and hit.raised and hit.raised.name == "FileExistsError"]
        if count_raising(folders) < 2 and self.processes < 2:  # if only one process finds a folder, no other one has created it
            renamed |= {id(hit): "USER-PY" for hit in folders}
        if any(hit.signature.role == "root" and hit.raised and hit.raised.traced and not hit.raised.ignored for hit in hits):
            renamed |= {id(hit): "WORKER-RERAISED" for hit in hits if hit.signature.id == "VLLM-WORKER"}  # its reason is in the text
        local = {(hit.stream, hit.raised.chain) for hit in hits if hit.raised and THIS_HOST.search(hit.text)}
        renamed |= {id(hit): "USER-PY" for hit in hits if _of_the_internet(hit) and hit.raised and (hit.stream, hit.raised.chain) in local}
        renamed |= {id(hit): "PARENT-GONE" for hit in hits if hit.raised and _lost_its_parent(hit.raised)}
        told = tuple(replace(hit, signature=BY_ID[renamed[id(hit)]]) if id(hit) in renamed else hit for hit in hits)
        return replace(self.found, hits=self._handled_by_a_server(told), remarks=remarks)

    def _handled_by_a_server(self, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        """Return the hits with exceptions marked as ignored that one process logged again and again: none of them ended it."""
        logged = [hit for hit in hits if hit.raised and hit.raised.logged]
        often = {text for text, times in Counter(NUMBER.sub("", hit.text) for hit in logged).items() if times >= OFTEN}
        if not often or self.failed_ends or self.processes > 1:
            return hits
        handled = {id(hit) for hit in logged if NUMBER.sub("", hit.text) in often and not self.in_last_lines(hit)}
        return tuple(replace(hit, raised=replace(hit.raised, ignored=True)) if hit.raised and id(hit) in handled else hit for hit in hits)

    @cached_property
    def ranks(self) -> set[int]:
        """All known ranks."""
        found = self.found
        return self.speaking_ranks | set(range(min(found.world or 0, 1 << 16)))

    @cached_property
    def speaking_ranks(self) -> set[int]:
        """All ranks with a line in the text."""
        found = self.found
        known = {hit.rank for hit in found.hits if hit.rank is not None} | {end.rank for end in found.ends if end.rank is not None}
        return known | set(found.pids.values()) | set(found.enqueued) | found.spoke | found.labelled

    @property
    def single(self) -> bool:
        """Return whether there is only one rank."""
        return self.found.world == 1 or (self.found.world is None and self.ranks == {0})

    @cached_property
    def failed_ends(self) -> list[Ended]:
        """The ends that were failures.

        SIGTERM is what a launcher sends to the remaining ranks, and SIGKILL what srun sends to its tasks if it is asked to end.
        """
        ends = [end for end in self.found.ends if end.exit.code not in (0, -15)]
        forced = min((hit.at for hit in self.found.hits if hit.text.startswith(FORCED)), default=None)
        if forced is None or any(end.at < forced for end in ends):
            return ends
        return [end for end in ends if end.exit.task is None or end.exit.code != -SIGKILL]

    @cached_property
    def failed(self) -> bool:
        """Return whether anything shows that the run failed."""
        crashed = any(
            (hit.raised and not hit.raised.ignored and self.may_be_the_end(hit)) or hit.signature.id in CRASHES for hit in self.found.hits
        )
        return bool(self.failed_ends or self.found.tracebacks or crashed)

    def may_be_the_end(self, hit: Hit) -> bool:
        """Return whether an exception can have ended its process: it has a traceback, or almost nothing is beside or after it."""
        if hit.raised is not None and hit.raised.traced:
            return True
        if self._goes_on_after(hit):
            return False
        return self.found.lines <= FEW or self.in_last_lines(hit)

    def _goes_on_after(self, hit: Hit) -> bool:
        """Return whether a loop is at work after a mere mention, or the program reports its own end after it."""
        if any(other.signature.role == "success" and other.at[0] == hit.at[0] and other.at > hit.at for other in self.found.hits):
            return True
        below = [text for number, text in self.found.ending.get(hit.at[0], []) if number > hit.at[1]]
        return is_loop(below) or bar_advances(below)

    def in_last_lines(self, hit: Hit) -> bool:
        """Return whether a file ends within a line or two after it."""
        last = self.found.tails.get(self.found.files[hit.at[0]], [])[-LAST:]
        return any(hit.text.strip()[:SAME] in line for line in last)

    @cached_property
    def ended_well(self) -> bool:
        """Return whether the run is known to have exited with 0."""
        found = self.found
        if self.failed_ends or self._raised_since():
            return False
        return found.all_well or (bool(found.well) and bool(found.world) and len(found.well) >= (found.world or 0))

    def _raised_since(self) -> bool:
        """Return whether an exception ended something after a launcher, or a shell, had last reported success: in a later step."""
        well = self.found.well_at
        raised = [
            hit for hit in self.found.hits if hit.signature.role == "root" and hit.raised and hit.raised.traced and not hit.raised.ignored
        ]
        return well is not None and any(hit.at[0] == well[0] and hit.at > well for hit in raised)

    @cached_property
    def end_in_doubt(self) -> bool:
        """Return whether a file holds several runs, or continues after the last message of a failure: the relevant end is uncertain."""
        found = self.found
        if found.several_runs or len(found.files) != 1:
            return found.several_runs
        spoken = [hit.at[1] for hit in found.hits if hit.signature.role in SAY_AN_END] + [end.at[1] for end in found.ends]
        last, traced = max(spoken, default=0), found.traced.get(0, ())
        return found.final.get(0, 0) - last - FRAME * (len(traced) - bisect_right(traced, last)) > AFTERWARDS

    def order(self, hit: Hit) -> tuple[float, int, int]:
        """Return a key that sorts hits by time: in one file by position, else by the ends of their ranks, or by time stamps."""
        if len(self.found.files) == 1:
            return (0.0, 0, (hit.noticed or hit.at)[1])
        rank = NEVER if hit.rank is None else hit.rank
        when = self.found.ended.get(int(rank), NEVER) if self.found.ended and rank != NEVER else hit.time
        return (NEVER if when is None else when, 1 << 30 if rank == NEVER else int(rank), hit.at[1])

    def before(self, hit: Hit, other: Hit) -> bool:
        """Return whether one came before the other. If that is unknown, assume that it did."""
        if hit.at[0] == other.at[0]:
            return hit.at[1] <= other.at[1]
        return hit.time is None or other.time is None or hit.time <= other.time

    def timed_out_before(self, stop: Hit) -> list[Hit]:
        """Return messages about a timed-out collective shortly before a stop: the timeout ends the ranks, and the stop is a consequence."""
        return [
            hit
            for hit in self.found.hits
            if hit.signature.id == "NCCL-WATCHDOG" and hit.at[0] == stop.at[0] and 0 < stop.at[1] - hit.at[1] <= SOON
        ]

    def deaths(self) -> list[Hit]:
        """Return ends by a signal, as hits of the signature for the signal (SIGKILL: KILLED-UNKNOWN, SIGBUS: SIGBUS-SHM, …).

        One hit for each cause and rank. Left out are ranks that were killed after the first failure, since the launcher kills the rest of a
        failed job, and ends of an unknown rank if the same cause is known for some rank, since they are repetitions.
        """
        hits = self._signal_hits()
        first = self._first_failure()
        late = {rank for rank, when in self.found.ended.items() if when > first}
        hits = [hit for hit in hits if not (hit.signature.id == "KILLED-UNKNOWN" and hit.rank in late)]
        of_a_rank = {hit.signature.id for hit in hits if hit.rank is not None}
        hits = [hit for hit in hits if not (hit.signature.id == "KILLED-UNKNOWN" and self._cancelled_before(hit))]
        return [hit for hit in hits if hit.rank is not None or hit.signature.id not in of_a_rank]

    def _cancelled_before(self, death: Hit) -> bool:
        """Return whether the scheduler had announced the end of the job, whose remaining processes it kills."""
        return any(hit.signature.id.startswith("SLURM-") and hit.at[0] == death.at[0] and hit.at < death.at for hit in self.found.hits)

    def _signal_hits(self) -> list[Hit]:
        """Return a hit for each cause and rank that ended by a signal, at its first report. Signals for a stop (SIGINT) do not count."""
        found: dict[tuple[str, int | None], Hit] = {}
        for end in self.failed_ends:
            cause = SIGNAL_CAUSES.get(-end.exit.code)
            if cause and BY_ID[cause].role != "stop":
                key = (cause, end.rank)
                if key not in found or end.at < found[key].at:
                    found[key] = Hit(BY_ID[cause], end.at, end.text, end.stream, end.rank, end.host, noticed=end.noticed)
        return list(found.values())

    def _first_failure(self) -> float:
        """Return when the first rank failed that no peer took down (a cascade without a cause of its own); NEVER if none is known."""
        rooted = {hit.rank for hit in self.found.hits if hit.signature.role == "root"}
        fallen = {hit.rank for hit in self.found.hits if hit.signature.role == "cascade"} - rooted
        ended = self.found.ended
        return min(
            (ended[end.rank] for end in self.failed_ends if end.rank is not None and end.rank in ended and end.rank not in fallen),
            default=NEVER,
        )

    def silent(self) -> list[int]:
        """Return ranks without a message about a failure, a success or an exit status, any of which may be the culprit."""
        own = {end.rank for end in self.found.ends if end.rank is not None and end.exit.code > 0}
        return sorted(self.ranks - self.found.spoke - self.found.well - own)

    def suspect(self) -> tuple[int | None, bool]:
        """Return the rank that died without a message, and whether that is likely: the only silent one, or the one that was dead first."""
        silent = self.silent()
        if len(silent) == 1 and len(self.ranks) > 1:
            return silent[0], True
        return self._dead_first(silent or sorted(self.ranks)), False

    @property
    def processes(self) -> int:
        """The number of ranks: the known ones, or those of torchrun that ended and that it ended."""
        by_themselves = {end.exit.rank for end in self.failed_ends if end.exit.local} or {end.rank for end in self.failed_ends if end.root}
        return max(len(self.ranks), self.found.closing + len(by_themselves))

    def _dead_first(self, among: Iterable[int]) -> int | None:
        """Return the rank that was dead before DeepSpeed's launcher ended its ranks one by one.

        It is the one that took no time to end if others did.
        """
        found, took = self.found, dict[int, float]()
        marks = sorted(found.times)
        for pid, began, at in found.killed:
            rank = found.pids.get(pid)
            then = next((when for place, when in marks if place > at), None)
            if rank is not None and began is not None and then is not None:
                took[rank] = then - began
        dead = [rank for rank in among if rank in took and took[rank] < ALIVE]
        return dead[0] if len(dead) == 1 and max(took.values()) >= ALIVE else None

    def behind(self) -> list[int]:
        """Return ranks that have enqueued the fewest collectives, if these differ; else those that did not report the timeout."""
        least = min(self.found.enqueued.values(), default=0)
        late = sorted(rank for rank, work in self.found.enqueued.items() if work == least)
        return late if late and len(late) < len(self.found.enqueued) else self.silent()

    def last_rank_named(self) -> int | None:
        """Return the rank with the last message, if only one names itself in the last lines."""
        reported = {rank_in(line) for lines in self.found.tails.values() for line in lines} - {None}
        return reported.pop() if len(reported) == 1 else None


def _of_the_internet(hit: Hit) -> bool:
    """Return whether an exception counts as one of a server on the internet."""
    return "NO-INTERNET" in (hit.signature.id, hit.signature.answer)


def _lost_its_parent(raised: Raised) -> bool:
    """Return whether a process of multiprocessing failed because the process that it talks to was gone."""
    return raised.name in LOST and LINKS.search(raised.deepest.file) is not None
