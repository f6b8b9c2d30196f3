"""The host of a job that runs only on this machine: processes are started, observed and ended directly."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from dstui.jobs.store.processes import Process, descendants, tagged
from dstui.jobs.supervisor.supervised_job import SupervisedJob

STUCK = 30.0
"""Seconds after a failure, or after the launcher's death, in which the other ranks must have ended or started."""


class ThisHost:
    """The ranks' host, with the interface that the supervisor uses; `remote_hosts.RemoteHosts` is the same for several hosts."""

    def __init__(self, job: SupervisedJob) -> None:
        self.job = job

    @property
    def may_restart(self) -> bool:
        """Return whether a further attempt can be started."""
        return True

    @property
    def fresh(self) -> bool:
        """Return whether nothing has been started yet."""
        return self.job.status.state == "starting" and not self.job.launcher and not tagged(self.job.tag)

    def launch(self, more: Sequence[str] = ()) -> None:
        """Begin an attempt. `more` is appended to the arguments of the script."""
        self.job.start_launcher(more)

    def poll(self) -> None:
        """Update the state of the hosts; this one has none."""

    def wait(self, pause: float) -> float:
        """Wait for messages of the hosts. Return the remaining seconds of the pause."""
        return pause

    def over(self) -> bool:
        """Return whether the job cannot continue: no process of it is left, or it is stuck after a failure."""
        job = self.job
        gone = job.launcher_gone
        if gone and job.every("members", 1.0) and not self.members():
            return True
        failed = job.ranks.first_failure is not None
        return job.lasting("stuck", failed or (gone and bool(job.ranks.waiting))) > STUCK

    def stop(self, by_itself: bool, turn: Callable[[], None]) -> None:
        """End processes on other hosts: there are none."""

    def close(self, turn: Callable[[], None]) -> None:
        """Release the hosts at the end of the job."""

    def members(self) -> set[Process]:
        """Return every process of the job: by its tag, and by descent for one that has cleared its environment."""
        return tagged(self.job.tag) | descendants(os.getpid())
