"""A job in view: its events, hangs and usage. It has no widget, and watching changes nothing of the job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from dstui.logs.log_folder import FINAL

if TYPE_CHECKING:
    from dstui.forecast.forecast import Forecast
    from dstui.jobs.store.events import Event
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.store.records import JobStatus
    from dstui.jobs.watch.hangs import Hang
    from dstui.jobs.watch.usage import Usage
    from dstui.jobs.watch.usage_history import History
    from dstui.plan import Plan

BACKLOG = 4 << 20
"""Bytes of each log whose metrics are read. The log itself is shown completely."""


class QueuedStatus:
    """Supervises a SLURM job without blocking the screen: SLURM may take long to answer."""

    def __init__(self) -> None:
        self._latest: JobStatus | None = None
        self._thread: Thread | None = None

    def __call__(self, folder: JobFolder) -> JobStatus | None:
        """Return the newest status, and start to ask for the next one."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._ask, args=(folder,), daemon=True)
            self._thread.start()
        return self._latest or folder.read_status()

    def _ask(self, folder: JobFolder) -> None:
        from dstui.jobs.control.take_over import take_over

        self._latest = take_over(folder)


class WatchedJob:
    """One job, watched from now until `close`; the job itself continues."""

    def __init__(self, folder: JobFolder, silence: float) -> None:
        """Watch a job. `silence`: seconds without a line after which a rank is called silent."""
        from dstui.base.files import FileProblem
        from dstui.jobs.control.take_over import take_over
        from dstui.jobs.store.plan_diff import plan_of
        from dstui.jobs.watch.follow import Follower
        from dstui.jobs.watch.hangs import Watch
        from dstui.jobs.watch.usage import Sampler
        from dstui.plan import PlanError

        self.folder, self.silence = folder, silence
        self.plan: Plan | None = None
        """The Plan of the job; None if it cannot be read."""
        with suppress(FileProblem, PlanError):
            self.plan = plan_of(folder)
        known = folder.read_status()
        self.follower = Follower(folder, BACKLOG, lines=False, status_of=QueuedStatus() if known and known.slurm_job else take_over)
        self._watch = Watch(silence)
        self.history: History | None = None
        """The ranks' use in the last minutes, from the supervisor's file; None before it was read."""
        self.expected: Forecast | None = None
        """Its forecast; None where its Plan names no model, or before that was worked out."""
        self._forecast_done = False
        self.sampler = Sampler(folder, tell=self._on_sample)
        self._stopping: float | None = None

    def _on_sample(self, *_: object) -> None:
        """Read the usage history that the supervisor has kept, in the sampler's thread."""
        from dstui.jobs.watch.usage_history import read_history

        self.history = read_history(self.folder.path)
        if not self._forecast_done:
            from dstui.jobs.watch.taken import expected  # brings the forecast, which the first frame does without

            self._forecast_done = True
            self.expected = expected(self.folder, self.plan)

    def close(self) -> None:
        """Stop watching."""
        self.follower.close()
        self.sampler.close()

    def poll(self) -> list[Event]:
        """Return the events since the last call."""
        return self.follower.poll()

    def news(self) -> str | None:
        """Return a sentence if ranks have started or stopped hanging since the last call."""
        return self._watch.news(self.follower.ranks, time.time())

    @property
    def hang(self) -> Hang | None:
        """Return which ranks wait for which now."""
        return self._watch.hang

    @property
    def name(self) -> str:
        """Return the name of the job's folder."""
        return self.folder.path.name

    @property
    def state(self) -> str:
        """Return the job's state in a word."""
        return str(self.follower.state)

    @property
    def alive(self) -> bool:
        """Return whether it has not ended."""
        return self.state not in FINAL

    @property
    def stoppable(self) -> bool:
        """Return whether any of its processes may be left: it has not ended, or a host could not be asked."""
        return self.alive or any(host.state != "ended" for host in self.follower.hosts.values())

    @property
    def hosts(self) -> list[str]:
        """Return its distinct hosts in the order of their ranks."""
        return list(dict.fromkeys(view.host for _, view in sorted(self.follower.ranks.items())))

    @property
    def usage(self) -> Mapping[int, Usage]:
        """Return what each rank uses, as far as it is known."""
        return self.sampler.latest

    @property
    def latest(self) -> float:
        """Return the reference time in seconds since the epoch: now, or the end of a job that has ended."""
        return time.time() if self.alive else (self.follower.started or 0.0) + self.follower.duration

    def stop_asked(self) -> None:
        """Note that the user has asked dstui to stop it."""
        self._stopping = monotonic()

    @property
    def stopping(self) -> float | None:
        """Return the seconds since a stop was requested; None if it was not, or the job has ended."""
        return monotonic() - self._stopping if self._stopping is not None and self.alive else None
