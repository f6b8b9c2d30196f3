"""Stop a job: ask, then escalate to SIGKILL for everything with the job's tag, and verify that nothing is left."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import field, replace
from shlex import quote

from dstui.base.dataclass import dataclass
from dstui.jobs.control.take_over import spawn_notification, spawn_supervisor, take_over
from dstui.jobs.queue.scheduler import cancel, look
from dstui.jobs.store.cleanup import OpBuilds, build_root
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag
from dstui.jobs.store.processes import Process, tagged
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import (
    current_status,
    finish,
    here,
    no_sign_of_life,
    ranks_of,
    rebuilt,
    supervisor_host,
    supervisor_of,
    unheard,
)
from dstui.jobs.supervisor.escalation import POLL, STEP, escalate, rank_processes

FRESH = 2.0
"""Seconds between two queries of SLURM about the end of a cancelled job."""
PATIENCE, PATIENCE_FAR = 3 * STEP + 5.0, 60.0
"""Seconds for a supervisor to finish after a request to stop, on this host and on others. After that, this process stops the job."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """The result of a stop: the job's state and exit status, and the processes that could not be ended, with pid and command line."""

    state: str
    exit_code: int | None
    left: list[str] = field(default_factory=list)
    refused: str = ""
    """The reason why nothing was done, as the end of a sentence: the job is not the user's own."""


def stop(folder: JobFolder, exit_code: int = 128 + signal.SIGTERM, *, take_over: bool = False) -> StopReport:
    """Stop a job of the user's own and wait until nothing of it is left. `exit_code` becomes the job's, unless it had ended before.

    The supervisor does it; if that is dead or stuck, this process does. With `take_over`, also for a supervisor on another host that gives
    no sign of life.
    """
    status = folder.read_status() or current_status(folder)
    status = status and replace(status, unheard=unheard(folder, status))
    try:
        tag = own_tag(folder, status)
    except NotOwn as why:
        return StopReport(status.state if status else "lost", None, refused=str(why))
    if status is None:
        unknown = f"{folder.status_file} is gone, half-written or of another version, and no rank has left a record of its processes"
        return StopReport("lost", None, [unknown])
    if status.slurm_job and not status.final:
        return _cancel(folder, status, status.slurm_job, exit_code)
    if not here(status) and not status.final:
        return _stop_elsewhere(folder, status, tag, exit_code, take_over)
    remote: list[str] = []
    if status.final:
        remote = _sweep(folder, status, tag)
    else:
        _ask(folder, exit_code, supervisor_of(status, tag))
        status = _await_end(folder, status, exit_code, tag)
        remote = [f"not confirmed on {name}: {host.problem or 'no answer'}" for name, host in status.hosts.items() if host.state != "ended"]
    left = escalate(lambda: tagged(tag))
    return StopReport(status.state, status.exit_code, [*sorted(process.describe() for process in left), *remote])


def _stop_elsewhere(folder: JobFolder, status: JobStatus, tag: str, exit_code: int, take_over: bool) -> StopReport:
    """Stop a job whose supervisor is on another host: only if requested, and if that host gives no sign of life."""
    host, silence = supervisor_host(status), folder.silence(time.time())
    if status.unheard is None and silence is not None:
        there = f"{host} supervises the job: stop it there (dstui stop {quote(str(folder.path))})"
        return StopReport(status.state, None, [f"{there}. It gave its last sign of life {silence:.0f} s ago"])
    if not take_over:
        runs = f"the job runs on {host}: stop it there, or, where {host} is gone, from here with --take-over"
        return StopReport(status.state, None, [no_sign_of_life(folder, status) or runs])
    from dstui.jobs.control.sweep import end_from_here  # most jobs have no other hosts

    _ask(folder, exit_code, None)  # in case its supervisor comes back
    status, left = end_from_here(folder, status, tag, exit_code)
    spawn_notification(folder)
    return StopReport(status.state, status.exit_code, left)


def _cancel(folder: JobFolder, status: JobStatus, job: str, exit_code: int) -> StopReport:
    """Cancel a queued or running job of SLURM. Its supervisor in the allocation writes the end, else this process does.

    A running job is asked first: scancel would cut the connections by which its supervisor cleans the nodes.
    """
    if (known := current_status(folder)) and known.final:
        known = take_over(folder) or known  # SLURM has ended it already, and nobody has written that
        return StopReport(known.state, known.exit_code)
    _ask(folder, exit_code, None)
    patience = time.monotonic() + (PATIENCE_FAR if status.supervisor and status.unheard is None else 0.0)
    while time.monotonic() < patience and not folder.has_ended:
        time.sleep(POLL)
    problem = cancel(job)
    deadline = time.monotonic() + PATIENCE_FAR
    while time.monotonic() < deadline:
        found = look(job, fresh=True)
        if found and found.meaning.means not in ("queued", "running"):
            ended = folder.read_status() or status
            if not ended.final:
                ended = take_over(folder) or ended
            return StopReport(ended.state, ended.exit_code)
        pause = time.monotonic() + FRESH
        while time.monotonic() < pause and not folder.has_ended:
            time.sleep(POLL)
    return StopReport(status.state, None, [f"SLURM job {job}: {problem or 'it is cancelled, and has not ended yet'}: squeue --jobs={job}"])


def _sweep(folder: JobFolder, status: JobStatus, tag: str) -> list[str]:
    """Return what may be left on the hosts of a job that has ended."""
    if all(host.state == "ended" for host in status.hosts.values()):
        return []
    from dstui.jobs.control.sweep import sweep  # most jobs have no other hosts

    return sweep(folder, status, tag)


def _ask(folder: JobFolder, exit_code: int, supervisor: Process | None) -> None:
    """Write the request for the supervisor, and wake it up. On a full disk, its SIGTERM alone must do."""
    number = signal.SIGUSR1
    try:
        by = {"by": os.getpid(), "command": Process(os.getpid(), 0).command()[:200]}
        folder.write_json(folder.stop_file, {"exit_code": exit_code, **by})
    except OSError:
        number = signal.SIGTERM
    if supervisor:
        supervisor.send(number)


def _await_end(folder: JobFolder, known: JobStatus, exit_code: int, tag: str) -> JobStatus:
    """Wait for the supervisor to finish. Replace it if it is dead or stuck."""
    deadline = time.monotonic() + (PATIENCE_FAR if known.hosts else PATIENCE)
    while True:
        status = folder.read_status()
        if status and status.final:
            return status
        lock = folder.lock()
        if lock is not None and known.hosts and time.monotonic() < deadline:
            spawn_supervisor(folder, lock, tag)  # the connections to the hosts
            os.close(lock)
            lock = None
        late = time.monotonic() - deadline
        if lock is not None or late > STEP:
            break
        if late > 0 and (supervisor := supervisor_of(status, tag)):
            supervisor.send(signal.SIGKILL)
        time.sleep(POLL)
    try:
        return _end(folder, known, exit_code, tag)
    finally:
        if lock is not None:
            os.close(lock)


def _end(folder: JobFolder, known: JobStatus, exit_code: int, tag: str) -> JobStatus:
    """End a job without a supervisor."""
    status = folder.read_status() or rebuilt(folder) or known
    if status.final:
        return status
    ranks = ranks_of(folder, status)
    if ranks.over and not tagged(tag):
        status = finish(folder, status, ranks, None, watched=False)  # it had ended, but the end could not be written
    else:
        builds = OpBuilds(build_root({**os.environ, **(record.env if (record := folder.read_launch()) else {})}))

        def update() -> None:
            ranks.update(time.time())
            builds.poll({number: ranks.ranks[number].pid or 0 for number in ranks.living})

        update()  # record which process holds which lock before they end
        escalate(lambda: tagged(tag), rank_processes(ranks, tagged(tag)), update)
        ranks.update(time.time())
        builds.remove_locks()
        status = finish(folder, status, ranks, exit_code)
    spawn_notification(folder)
    return status
