"""The state of a job inside its supervisor: its records, the launcher process, and its processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from dstui.base.regular_files import open_regular
from dstui.jobs.store.folder import FULL, JobFolder
from dstui.jobs.store.processes import Process, descendants, find, tagged
from dstui.jobs.store.ranks import Rank
from dstui.jobs.store.records import JobStatus, LaunchRecord, ProcessRecord
from dstui.jobs.store.status import ranks_of
from dstui.jobs.supervisor.launch_command import command, environment
from dstui.jobs.supervisor.resource_facts import ResourceFacts

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class SupervisedJob:
    """One job, continued from the state that its folder records."""

    def __init__(self, folder: JobFolder, tag: str) -> None:
        """Load the job. `tag`: its tag from the user's own index."""
        self.folder, self.tag = folder, tag
        self.status = replace(folder.read_status() or JobStatus("running"), tag=tag)
        self.record = folder.read_launch() or LaunchRecord(missing="keys")
        if self.record.missing:
            self.record = LaunchRecord(missing=self.record.missing)
        self.launcher = self.status.launcher.here if self.status.launcher else None
        self.ranks = ranks_of(folder, self.status)
        self.facts = ResourceFacts((folder.path, Path(self.record.workdir or folder.path)))
        self.asked: int | None = None
        """The exit status that was requested together with the end of the job."""
        self.unwritten = False
        """True if status.json is older than `status`."""
        self._since: dict[str, float] = {}

    @property
    def launcher_gone(self) -> bool:
        """Return whether no launcher is left that could start ranks."""
        return self.launcher is None or not self.launcher.alive

    def start_launcher(self, more: Sequence[str]) -> None:
        """Start the launcher. If its interpreter cannot be started, the job has no ranks."""
        self.launcher = None
        self.note_in_status(launcher=None, launcher_exit=None)
        self.event("facts", attempt=self.ranks.attempt, **self.facts.now())
        with os.fdopen(open_regular(self.folder.launcher_log, APPEND), "ab") as log:
            if child := self._popen(more, log):
                child.returncode = 0  # reap() collects it
                self.launcher = find(child.pid)
                self.note_in_status(launcher=ProcessRecord.of(self.launcher) if self.launcher else None)

    def _popen(self, more: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes] | None:
        """Return the launcher process; None if it cannot be started, with the reason in its log."""
        if self.record.missing:
            log.write(f"dstui: cannot start the job: {self.folder.launch_file} has no {self.record.missing}\n".encode())
            return None
        try:
            argv = command(self.record, self.folder, self.tag, self.ranks.attempt, more)
            self.note_in_status(command=tuple(argv))
            return subprocess.Popen(
                argv,
                cwd=self.record.workdir,
                env=environment(self.record, self.folder, self.tag),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=default_signals,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            log.write(f"dstui: cannot start {self.record.python} in {self.record.workdir}: {error.strerror}\n".encode())
        return None

    def note_reaped(self, reaped: Sequence[tuple[int, int]]) -> None:
        """Record the launcher's exit status if it is among the collected processes: (pid, wait status) of each."""
        for pid, status in reaped:
            if self.launcher is not None and pid == self.launcher.pid and os.WIFEXITED(status):
                self.note_in_status(launcher_exit=os.WEXITSTATUS(status))
                self.unwritten = True

    def forget_timers(self) -> None:
        """Reset the timers for a further attempt."""
        self._since.clear()

    def every(self, what: str, seconds: float) -> bool:
        """Return True at most once in `seconds`."""
        now = time.monotonic()
        if now - self._since.get(what, 0.0) < seconds:
            return False
        self._since[what] = now
        return True

    def lasting(self, what: str, holds: bool) -> float:
        """Return for how many seconds a condition has held without interruption."""
        if not holds:
            self._since.pop(what, None)
            return 0.0
        return time.monotonic() - self._since.setdefault(what, time.monotonic())

    def rank_event(self, number: int, rank: Rank) -> None:
        """Write an event for a rank that has started, ended or is lost."""
        self.event("rank", rank=number, host=rank.host, state=rank.state, exit_code=rank.exit_code)

    def note_full_disk(self, place: Path | None) -> None:
        """Record in the status which disk of the job is full: ranks that cannot write may end without a message."""
        if place is not None and not self.status.disk_full:
            self.note_in_status(disk_full=str(place))
            self.unwritten = True

    def note(self, text: str, *, stops: bool = False) -> None:
        """Write a notice for the user. `stops`: it is the reason why the job is stopped."""
        self.event("notice", text=text, **({"stops": True} if stops else {}))

    def event(self, event: str, **facts: Any) -> None:
        """Append a line to events.jsonl. A full disk must not end the supervision."""
        try:
            self.folder.append_event(time.time(), event, **facts)
        except OSError as error:
            self._meet(error)

    def note_in_status(self, **changes: Any) -> None:
        """Change fields of the status in memory; `write` writes it."""
        self.status = replace(self.status, **changes)

    def write(self) -> None:
        """Write status.json. If that fails, `unwritten` causes a retry."""
        self.note_in_status(ranks=self.ranks.statuses())
        try:
            self.folder.write_status(self.status)
            self.unwritten = False
        except OSError as error:
            self._meet(error)
            self.unwritten = True

    def _meet(self, error: OSError) -> None:
        """Handle a failed write of a record: a full disk is noted and must not end the supervision."""
        if error.errno in FULL:
            self.note_full_disk(self.folder.path)


def default_signals() -> None:
    """Reset all signals in the launcher, whatever the shell of dstui had set (nohup, `&`)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


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
    def is_unstarted(self) -> bool:
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
