"""What the supervisor noted of silent ranks, as words of a diagnosis: of a job that hangs, and of one that somebody stopped for it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from dstui.base.text import sanitise
from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.store.records import JobStatus

HANG = "HANG"


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence that had not ended: from the last line of any rank on."""

    since: float
    """Seconds since the epoch."""
    missing: tuple[int, ...]
    """Ranks that had not come as far as the others: the stragglers that these wait for."""
    evidence: Evidence

    def so_far(self, until: float) -> str:
        """`12 min`, and who is missing."""
        minutes = max(until - self.since, 0.0) / 60
        lasting = f"{minutes:.0f} min" if minutes >= 1 else f"{max(until - self.since, 0.0):.0f} s"
        late = f"; {ranks_in_words(self.missing)} had not come as far as the others" if self.missing else ""
        return f"{lasting}{late}"


def last_silence(folder: JobFolder, attempt: int) -> Silence | None:
    """Return the silence in which an attempt of the job is, or was when it ended."""
    found: Silence | None = None
    for line, event in folder.numbered_events():
        if event.get("attempt") != attempt:
            continue
        if event.get("event") == "silence_over":
            found = None
        elif event.get("event") == "silence":
            with suppress(KeyError, TypeError, ValueError):
                missing = tuple(number for number in event.get("missing") or () if type(number) is int)
                text = sanitise(str(event.get("text") or "no rank has written anything"))
                found = Silence(float(event["since"]), missing, Evidence(str(folder.events_file), line, text))
    return found


def with_silence(diagnosis: Diagnosis, folder: JobFolder, status: JobStatus | None) -> Diagnosis:
    """Add to the diagnosis of a running or a stopped job that its ranks say, or said, nothing any more."""
    silence = last_silence(folder, status.attempt) if status else None
    if status is None or silence is None:
        return diagnosis
    words = silence.so_far(status.ended or time.time())
    evidence = (*diagnosis.evidence, silence.evidence)
    if not status.final:
        title = f"The job still runs, and no rank has written anything for {words}"
        return replace(diagnosis, title=title, evidence=evidence, could_be=(HANG,))
    if diagnosis.kind != "stop":
        return diagnosis
    note = f"Before that no rank had written anything for {words}."
    return replace(diagnosis, evidence=evidence, could_be=tuple(dict.fromkeys((*diagnosis.could_be, HANG))), notes=(*diagnosis.notes, note))
