"""status.json: the states of a job from its start to its end, and its supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from shlex import quote

from dstui.base.files import all_read
from dstui.base.regular_files import read_json
from dstui.base.text import sanitise
from dstui.jobs.queue.scheduler import QueuedJob, look
from dstui.jobs.store.cleanup import remove_buffers
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag, owner_of
from dstui.jobs.store.processes import SUPERVISES, SUPERVISORS, Process, carries, processes_visible, tagged
from dstui.jobs.store.ranks import Ranks, read_record
from dstui.jobs.store.record_forms import is_version, rank_number
from dstui.jobs.store.records import VERSION, HostStatus, JobState, JobStatus, ProcessRecord, RankStatus

HEARTBEAT, SILENT = 10.0, 60.0
"""Seconds between two heartbeats of a supervisor, and without one after which it may be gone."""
UNWATCHED = "its ranks have recorded no end; whether their pods still run is not visible from here: kubectl get pods"


def initial(tag: str, hosts: Mapping[int, str], owner: Process | None, others: Iterable[str] = ()) -> JobStatus:
    """Return the status of a job that is about to start.

    `hosts`: rank -> host; `owner`: the process that the job ends with; `others`: the hosts of a job that also runs elsewhere.
    """
    now = time.time()
    ranks = {rank: RankStatus(host) for rank, host in sorted(hosts.items())}
    found = {host: HostStatus("starting", now) for host in others}
    return JobStatus("starting", tag, started=now, owner=ProcessRecord.of(owner) if owner else None, ranks=ranks, hosts=found)


def supervisor_of(status: JobStatus | None, tag: str) -> Process | None:
    """Return the supervisor that a status names, if it lives and its environment names this job; only then may it be signalled."""
    named = status.supervisor.here if status and status.supervisor else None
    return named if named and named.alive and carries(named.pid, SUPERVISES, tag) else None


def here(status: JobStatus) -> bool:
    """Return whether the job's supervisor is, or was, on this host: only there are its processes visible."""
    return status.supervisor is None or status.supervisor.host in (None, os.uname().nodename)


def supervisor_host(status: JobStatus) -> str:
    """Return the supervisor's host, safe to show."""
    return sanitise((status.supervisor.host if status.supervisor else None) or "another host")


def unheard(folder: JobFolder, status: JobStatus) -> float | None:
    """Return the seconds since the last heartbeat of a supervisor on another host if one is overdue; else None."""
    silence = None if status.final or here(status) else folder.silence(time.time())
    return silence if silence is not None and silence > SILENT else None


def orphan_hint(folder: JobFolder, status: JobStatus) -> str:
    """Return what to do about a job whose supervisor was killed, as a sentence; "" for other jobs."""
    if not status.orphaned:
        return ""
    name = quote(folder.name)
    if status.final and status.slurm_job:
        return f"SLURM has ended it, and its end is not recorded: dstui attach {name} records it"
    if status.final:
        return f"its supervisor was killed, and its end is not recorded: dstui attach {name} records it"
    return f"its supervisor was killed: dstui attach {name} starts another, dstui stop {name} ends the job"


def no_sign_of_life(folder: JobFolder, status: JobStatus) -> str:
    """Return that a job elsewhere may have ended silently, and what to do, as a sentence; "" for other jobs."""
    if status.unwatched:
        return UNWATCHED
    if status.unheard is None:
        return ""
    since = f"no sign of life from {supervisor_host(status)} for {status.unheard // 60:.0f} min"
    return since if status.foreign else f"{since}: dstui stop {quote(folder.name)} --take-over asks the job's hosts"


def ranks_of(folder: JobFolder, status: JobStatus | None) -> Ranks:
    """Return the ranks of a status with the present state of their records, or of the status itself for missing records."""
    reported = status.ranks if status else {}
    hosts = {number: rank.host for number, rank in reported.items()}
    ranks = Ranks.expected(folder, hosts, status.attempt if status else 1, status.tag if status else None)
    ranks.unseen = not processes_visible(owner_of(folder)) or bool(status and status.hosts)
    ranks.update(time.time())
    ranks.remember(reported)
    return ranks


def unconfirmed(status: JobStatus) -> list[str]:
    """Return the hosts of an ended job that have not confirmed that nothing is left there, safe to show."""
    return [sanitise(name) for name, host in status.hosts.items() if host.state != "ended"] if status.final else []


def requested_exit_code(folder: JobFolder) -> int | None:
    """Return the exit status requested with the end of the job; None without a request."""
    return folder.read_stop().get("exit_code")


def concluded(status: JobStatus, ranks: Ranks, asked: int | None, *, watched: bool, end: JobState = "stopped") -> JobStatus:
    """Return the final status of a job that has ended.

    `asked`: the exit status requested with a stop, None if the job ended by itself. `watched`: the end was observed. `end`: the state of a
    job that was asked to end.
    """
    code = ranks.exit_code() if asked is None else asked
    state: JobState = end if asked is not None else "succeeded" if code == 0 else "failed"
    ends = [rank.ended for rank in ranks.ranks.values() if rank.ended]
    now = time.time()
    if not watched:
        now = max(ends, default=now)
        if state == "failed" and ends and not any(rank.state == "ended" for rank in ranks.ranks.values()):
            state = "lost"  # the host went down, or everything was killed at once: the end is unknown
    return replace(status, state=state, ended=now, exit_code=code, ranks=ranks.statuses())


def finish(  # noqa: PLR0913 - the last two are named
    folder: JobFolder, status: JobStatus, ranks: Ranks, asked: int | None, *, watched: bool = True, end: JobState = "stopped"
) -> JobStatus:
    """Return the final status and write it if possible; remove what DeepSpeed left on this host. Only for a job of the user's own."""
    return write_end(folder, concluded(status, ranks, asked, watched=watched, end=end), ranks)


def write_end(folder: JobFolder, status: JobStatus, ranks: Ranks) -> JobStatus:
    """Write a final status if possible, and remove what DeepSpeed left on this host. Only for a job of the user's own."""
    removed = remove_buffers(rank.master for rank in ranks.ranks.values() if rank.master)
    now = time.time()
    with suppress(OSError):
        for path in removed:
            folder.append_event(now, "notice", text=f"removed {path}, which DeepSpeed had left in memory")
        # a read on another host does not show here
        here = not status.hosts and all(rank.host == os.uname().nodename for rank in ranks.ranks.values())
        config_read = all_read(folder.ds_configs) if here else None
        folder.append_event(now, "exit", exit_code=status.exit_code, state=status.state, config_read=config_read)
    with suppress(OSError):
        folder.write_status(status)
    return status


def rebuilt(folder: JobFolder) -> JobStatus | None:
    """Reconstruct a status from other files of the folder, if status.json is missing, half-written or of another version.

    None if no rank has left a record by which its processes can be found.
    """
    numbers = (rank_number(path.name) for path in folder.attempt(2).parent.glob("*"))
    attempt = max((number for number in numbers if number), default=1)
    ranks = Ranks.expected(folder, {}, attempt)
    ranks.unseen = not processes_visible(owner_of(folder))
    ranks.update(time.time())
    tags = [tag for number in ranks.ranks if (tag := read_record(folder.record(number, attempt)).get("tag"))]
    if not tags:
        return None
    began = min((rank.began for rank in ranks.ranks.values() if rank.began), default=time.time())
    written = read_json(folder.status_file).get("version")
    version = written if written and is_version(written) else VERSION
    return JobStatus("running", tags[0], attempt, began, ranks=ranks.statuses(), version=version)


def has_ended(folder: JobFolder) -> bool:
    """Return whether a job has ended, by its current status."""
    status = current_status(folder)
    return status is not None and status.final


def current_status(folder: JobFolder) -> JobStatus | None:
    """Return the current status of a job; None if the folder has none.

    This only reads: nothing is started, signalled or written (`control.take_over` does that). If the supervisor was killed, `orphaned` is
    set, and a job without any living process is returned as ended. On another host than the job's, status.json is returned unchanged. If a
    job is not the user's own, `foreign` says why.
    """
    status = folder.read_status() or rebuilt(folder)
    if status is None or status.final:
        return status
    try:
        tag = own_tag(folder, status)
    except NotOwn as why:
        return replace(observed(folder, status), foreign=str(why))
    if status.slurm_job and os.environ.get("SLURM_JOB_ID") != status.slurm_job:
        return _queued(folder, status, status.slurm_job)
    if not here(status):
        return replace(status, unheard=unheard(folder, status))
    if folder.is_attended() or supervisor_of(status, tag):
        return folder.read_status() or status
    status = folder.read_status() or status  # it may have ended since it was read
    if not status.final:
        lives = tagged(tag) or status.hosts  # only a supervisor sees processes on other hosts
        ended = status if lives else concluded(status, ranks_of(folder, status), requested_exit_code(folder), watched=False)
        status = replace(ended, orphaned=True)
    return status


def _queued(folder: JobFolder, status: JobStatus, job: str) -> JobStatus:
    """Return the status of a job that SLURM started or will start: only SLURM knows whether it still has a supervisor."""
    found = look(job)
    if found is None:
        return replace(status, unheard=unheard(folder, status), waits="SLURM does not answer" if status.state == "queued" else "")
    if found.meaning.means == "queued":
        return replace(status, state="queued", waits=found.words)
    if found.meaning.means == "running":
        return replace(
            status, waits=found.words or "its nodes are allocated: dstui starts on them" if status.state == "queued" else found.words
        )
    status = folder.read_status() or status  # its supervisor may have written the end since
    return status if status.final else replace(ended_by_slurm(folder, status, found), orphaned=True, waits=found.words)


def ended_by_slurm(folder: JobFolder, status: JobStatus, found: QueuedJob) -> JobStatus:
    """Return the final status of a job that SLURM reports as ended and whose supervisor could not write the end."""
    asked, meaning = requested_exit_code(folder), found.meaning
    ended = concluded(status, ranks_of(folder, status), asked, watched=False)
    if asked is not None or meaning.means == "ended":
        return ended
    return replace(ended, state="failed" if meaning.means == "failed" else "stopped", exit_code=meaning.exit_code)


def observed(folder: JobFolder, status: JobStatus) -> JobStatus:
    """Return the visible status of a job of another user, or of a copy: nothing is written, and nothing invisible is claimed.

    If its supervisor should be visible and is not running, the job has ended if all its ranks have; otherwise its state is lost.
    """
    ranks, supervisor = ranks_of(folder, status), status.supervisor.here if status.supervisor else None
    alone = status.supervisor is None and ranks.over  # the pods of a Kubernetes job have none: their records tell the end
    unseen = ranks.unseen or not here(status) or ranks.run_elsewhere
    if not alone and (unseen or (supervisor and supervisor.alive and _attends(supervisor, folder))):
        return replace(status, unheard=unheard(folder, status))
    return concluded(status, ranks, requested_exit_code(folder), watched=False) if ranks.over else replace(status, state="lost")


def _attends(supervisor: Process, folder: JobFolder) -> bool:
    """Return whether a process is the supervisor of this very folder, not of one that was copied."""
    words = supervisor.words()
    at = next((place for place, word in enumerate(words) if word in SUPERVISORS), len(words))
    with suppress(OSError, IndexError):
        return folder.path.samefile(words[at + 1])
    return False
