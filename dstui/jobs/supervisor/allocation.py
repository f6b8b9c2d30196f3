"""The SLURM allocation of a supervisor: why SLURM ends it, and whether the job is requeued.

SLURM sends SIGTERM to every process of an allocation that it ends, and SIGUSR1 to the supervisor some time before the limit if the Plan
allows restarts.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from dstui.jobs.queue.scheduler import STATES, SlurmState, controller_facts, run_slurm
from dstui.jobs.store.records import JobState
from dstui.jobs.supervisor.supervised_job import SupervisedJob

REASONS = {"TimeLimit": "TIMEOUT", "Preempted": "PREEMPTED", "NodeDown": "NODE_FAIL"}
"""Reasons of a completing job, whose state alone does not say why it ends."""
MARKS = {b"DUE TO PREEMPTION": "PREEMPTED", b"DUE TO NODE FAILURE": "NODE_FAIL", b"DUE TO TIME LIMIT": "TIMEOUT"}
"""Messages that slurmstepd writes into the job's output before it signals."""
TAIL = 4096


class Allocation:
    """The allocation of one attempt."""

    def __init__(self, job: SupervisedJob, number: str) -> None:
        self.job, self.number = job, number
        self._state: SlurmState | None = None
        """The state that SLURM gave to the job; None while there is none."""
        self._requeue = False
        """Whether the supervisor must requeue the job."""
        self._waits = False
        """Whether the job is in the queue again after it has ended here."""

    @property
    def end(self) -> JobState:
        """The state of a job that was asked to end."""
        return "failed" if self._state and self._state.means == "failed" else "stopped"

    def signalled(self, number: int) -> int:
        """Return the exit status for the job after a signal from SLURM, and report its meaning."""
        if number == signal.SIGUSR1:
            self._state = STATES["TIMEOUT"]
            self._requeue = self._waits = self.job.ranks.attempt <= self.job.record.restarts.max
            then = "the job is queued again" if self._requeue else "run.restarts.max is reached"
            self._note(f"its time is nearly up: the ranks get a SIGTERM, and {then}")
            return self._state.exit_code or 1
        facts = controller_facts(self.number)
        if int(facts.get("Restarts") or 0) > int(os.environ.get("SLURM_RESTART_COUNT") or 0):
            self._waits = True
            self._note(f"SLURM ends this attempt and queues the job again{' (preempted)' if self._marked() == 'PREEMPTED' else ''}")
            return 128 + number
        word = facts.get("JobState", "")
        if word not in STATES or STATES[word].means in ("queued", "running"):
            word = REASONS.get(facts.get("Reason", ""), "") or self._marked() or "CANCELLED"
        self._state = STATES[word]
        self._note(self._state.says)
        return self._state.exit_code or 128 + number

    def waits_again(self) -> bool:
        """Return whether the job is in the queue again. Then status.json says so, and no end is announced."""
        if not self._waits:
            return False
        self.job.note_in_status(state="queued", supervisor=None, launcher=None)
        self.job.write()
        if self._requeue and run_slurm(["scontrol", "requeue", self.number]) is None:
            self._note("SLURM does not queue it again: scontrol requeue failed")
            return False
        return True

    def _marked(self) -> str:
        """Return the state in slurmstepd's last messages; "" if there is none."""
        data = b""
        with suppress(OSError), self.job.folder.launcher_log.open("rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - TAIL, 0))
            data = log.read(TAIL)
        return next((state for mark, state in MARKS.items() if mark in data), "")

    def _note(self, text: str) -> None:
        self.job.note(f"SLURM job {self.number}: {text}", stops=True)
