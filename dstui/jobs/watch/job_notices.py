"""The notices about a job as a whole: what its status says, and the events that its supervisor writes. Each is given once."""

from __future__ import annotations

from collections.abc import Iterator

from dstui.base.regular_files import json_object
from dstui.base.text import sanitise
from dstui.jobs.store.events import Event, HostChange, Notice
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.record_forms import is_number
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import no_sign_of_life, orphan_hint
from dstui.logs.tail import Tail

BUDGET = 1 << 20
"""Bytes of events.jsonl that one call reads."""
MAX_PLACES = 24
"""Sentences about the stacks of silent ranks that are shown."""
HANG = "hang"
"""The `Notice.code` of hangs."""
FULL = "the disk is full: logs, checkpoints and other output there are truncated; free some space"


class JobNotices:
    """The notices of one job."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder, self._events = folder, Tail(folder.events_file)
        self.foreign = ""
        """The reason why the job is not the user's own, as the end of a sentence."""
        self.waits = ""
        """SLURM's state of a queued job, as a sentence."""
        self.unheard = ""
        """A sentence if the supervisor on another host gives no sign of life."""
        self.places: tuple[str, ...] = ()
        """The ranks that wait for others, and where, from the supervisor's reading of their stacks; empty unless they are silent."""
        self._given: dict[str, str] = {}
        """The notices about lasting facts that were given, by subject."""

    def update(self, status: JobStatus | None) -> None:
        """Note what a status says. Called about once a second."""
        self.foreign = status.foreign if status else ""
        self.waits = status.waits if status else ""
        self.unheard = (no_sign_of_life(self._folder, status) or orphan_hint(self._folder, status)) if status else ""

    def read(self, status: JobStatus | None, attempt: int) -> list[Event]:
        """Return the new notices. `attempt`: the present one, since the stacks of another are out of date."""
        return [*self._status_notices(status), *self._supervisor_notices(attempt), *self._queue_notices(status)]

    def close(self) -> None:
        """Close the file of events."""
        self._events.close()

    def _status_notices(self, status: JobStatus | None) -> Iterator[Event]:
        if self.foreign and self._is_new("foreign", "yes"):
            yield Notice(f"this job {self.foreign}: it is read-only here")
        if status and status.disk_full and self._is_new("disk", "full"):
            yield Notice(f"{sanitise(status.disk_full)}: {FULL}")
        if self._is_new("unheard", "yes" if self.unheard else "") and self.unheard:
            yield Notice(self.unheard)

    def _queue_notices(self, status: JobStatus | None) -> Iterator[Event]:
        """Yield why the job waits now: after what was recorded before, such as that it was queued."""
        if self.waits and self._is_new("waits", self.waits.partition(";")[0]):  # what follows changes with every look
            yield Notice(f"SLURM job {status.slurm_job if status else ''}: {self.waits}")

    def _is_new(self, subject: str, state: str) -> bool:
        """Return whether the state of a subject differs from the last one, and note it."""
        before, self._given[subject] = self._given.get(subject, ""), state
        return state != before

    def _supervisor_notices(self, attempt: int) -> Iterator[Event]:
        for line in self._events.read(BUDGET):
            found = json_object(line.encode())
            if found.get("event") == "notice":
                yield Notice(sanitise(str(found.get("text"))), sanitise(str(found.get("about", ""))), found.get("lasts") is True)
            elif found.get("event") in ("stacks", "silence_over"):
                yield from self._take_places(found.get("lines"), current=found.get("attempt") == attempt)
            elif found.get("event") == "host":
                host, state, text = (sanitise(str(found.get(name))) for name in ("host", "state", "text"))
                seconds = found.get("seconds")
                yield HostChange(host, state, text, seconds if is_number(seconds) else None)

    def _take_places(self, lines: object, *, current: bool) -> Iterator[Event]:
        """Note where silent ranks are, or that they continue."""
        texts = [sanitise(line) for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
        self.places = tuple(texts[:MAX_PLACES]) if current else ()
        if self.places:
            yield Notice("; ".join(line.rstrip(".") for line in self.places), code=HANG)
