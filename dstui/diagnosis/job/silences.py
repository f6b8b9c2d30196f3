"""Add the supervisor's notes on silent ranks to a diagnosis, for jobs that hang or have hung."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dstui.base.text import sanitise
from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.diagnosis.signatures import BY_ID
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.store.records import JobStatus
from dstui.plan.finding import Fix

HANG = "HANG"
OPEN = ("HANG-DESYNC",)
"""Causes that, like all symptoms, leave open which rank did not reach a collective, and why."""
LAST = 60.0
"""Seconds before the end of a job in which a silence may have ended with the messages of its failure: a timeout prints a traceback."""
MOST_PLACES = 8
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
    """Which rank was late for what, and where each rank was, from the stacks."""
    at: str = ""
    """Where the first of the missing ranks was."""
    over: float | None = None
    """When the ranks continued; None if they did not."""

    def lasted(self, until: float) -> str:
        """Format the duration: `12 min`."""
        seconds = max((self.over or until) - self.since, 0.0)
        return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"

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
                places = tuple(sanitise(str(text)) for text in event["lines"][:MOST_PLACES])
                late = _ranks(event.get("late"))
                shown = Evidence(str(folder.events_file), line, "; ".join(places), late[0] if late else None)
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
        return replace(diagnosis, title=title, evidence=evidence, could_be=(HANG,))
    ended = status.ended or time.time()
    if diagnosis.kind not in ("stop", "failure") or (silence.over is not None and ended - silence.over > LAST):
        return diagnosis
    note = f"Before that no rank had written anything for {silence.lasted(ended)}{silence.whom}."
    diagnosis = replace(diagnosis, notes=(note, *diagnosis.notes))
    if diagnosis.kind == "stop":
        return replace(diagnosis, evidence=evidence, could_be=tuple(dict.fromkeys((*diagnosis.could_be, HANG))))
    if diagnosis.cause is not None and BY_ID[diagnosis.cause].role != "symptom" and diagnosis.cause not in OPEN:
        return diagnosis  # an error of its own: the silence before it is only mentioned
    diagnosis = replace(diagnosis, evidence=evidence)
    return _stuck(diagnosis, silence) if silence.at else diagnosis


def _stuck(diagnosis: Diagnosis, silence: Silence) -> Diagnosis:
    """Return a diagnosis of ranks that waited in vain, with the missing rank and its line."""
    signature, rank = BY_ID[HANG], silence.missing[0]
    could_be = [cause for cause in (diagnosis.cause, *diagnosis.could_be) if cause and cause != HANG]
    look = Fix(f"See why rank {rank} stayed there: a file, a lock, a download, a loop; or why only it went there")
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
        fixes=(look,),
    )
