"""The decision to start a job again: by dstui (how often, after which pause, from which checkpoint), or by SLURM, which requeues it.

SLURM sends SIGTERM to every process of an allocation that it ends, and SIGUSR1 to the supervisor some time before the limit if the Plan
allows restarts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dstui.jobs.queue.scheduler import STATES, SlurmState, controller_facts, run_slurm
from dstui.jobs.store.records import JobState, LaunchRecord
from dstui.jobs.supervisor.supervised_job import SupervisedJob

CHECKPOINT = "{checkpoint}"
MARKS = ("latest", "trainer_state.json")
"""Files that DeepSpeed and the Trainer write last into a folder from which they can resume."""
DEPTH = 4
"""Levels below the working directory, or below a folder that an argument names, that are searched for a checkpoint."""
PASSED_OVER = ("dstui_runs", "node_modules", "__pycache__", "wandb", "site-packages")


def restart_arguments(launch: LaunchRecord, since: float) -> tuple[list[str], str]:
    """Return the arguments that a new attempt appends, and a text about its starting point.

    Only a checkpoint that this job has written since `since` (seconds since the epoch) counts. Without one, arguments that refer to it are
    all left out.
    """
    words = list(launch.restarts.args)
    if not any(CHECKPOINT in word for word in words):
        return words, "as before" if not words else f"with {' '.join(words)}"
    found = latest_checkpoint(places(launch), since)
    if found is None:
        return [], "from the beginning: there is no checkpoint yet"
    return [word.replace(CHECKPOINT, str(found)) for word in words], f"from {found}"


def places(launch: LaunchRecord) -> list[Path]:
    """Return folders that may contain a job's checkpoints: its working directory, and those that its arguments name."""
    workdir = Path(launch.workdir)
    values = [word.rpartition("=")[2] for word in launch.args]
    return [workdir, *(path for value in values if value and (path := workdir / value).is_dir())]


def latest_checkpoint(roots: Iterable[Path], since: float) -> Path | None:
    """Return the folder that was completed last, at or after `since`; None if there is none."""
    found = [(mark.stat().st_mtime, mark.parent) for root in roots for mark in _marks(root, DEPTH)]
    return max(((time, path) for time, path in found if time >= since), default=(0.0, None))[1]


def _marks(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files that mark a folder as a checkpoint."""
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError):
        entries = list(os.scandir(folder))
    for entry in entries:
        with suppress(OSError):
            if entry.name in MARKS and entry.is_file():
                yield Path(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name not in PASSED_OVER:
                yield from _marks(Path(entry.path), depth - 1)


REASONS = {"TimeLimit": "TIMEOUT", "Preempted": "PREEMPTED", "NodeDown": "NODE_FAIL"}
"""Reasons of a completing job, whose state alone does not say why it ends."""
ENDS_BY_SLURM = {b"DUE TO PREEMPTION": "PREEMPTED", b"DUE TO NODE FAILURE": "NODE_FAIL", b"DUE TO TIME LIMIT": "TIMEOUT"}
"""Messages that slurmstepd writes into the job's output before it signals."""
TAIL = 4096


class Allocation:
    """The allocation of one attempt."""

    def __init__(self, job: SupervisedJob, number: str) -> None:
        self.job, self.number = job, number
        self._state: SlurmState | None = None
        """The state that SLURM gave to the job; None while there is none."""
        self._requeue = False
        """True if the supervisor must requeue the job."""
        self._waits = False
        """True if the job is in the queue again after it has ended here."""

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
        return next((state for mark, state in ENDS_BY_SLURM.items() if mark in data), "")

    def _note(self, text: str) -> None:
        self.job.note(f"SLURM job {self.number}: {text}", stops=True)
