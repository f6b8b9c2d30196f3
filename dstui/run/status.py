"""status.json: the states of a job, from its start to its end, and who looks after it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dstui.run.folder import FINAL, JobFolder, iso, read_json
from dstui.run.leftovers import remove_buffers
from dstui.run.processes import Process, started, tagged
from dstui.run.ranks import Ranks

Status = dict[str, Any]


def initial(tag: str, hosts: Mapping[int, str], front: Process | None) -> Status:
    """The status of a job that is about to start."""
    return {
        "version": 1,
        "state": "starting",
        "supervisor": None,
        "front": process_json(front) if front else None,
        "attempt": 1,
        "started": iso(time.time()),
        "ended": None,
        "exit_code": None,
        "command": [],
        "ranks": {str(rank): {"host": host, "pid": None, "state": "waiting", "exit_code": None} for rank, host in sorted(hosts.items())},
        "tag": tag,
        "launcher": None,
    }


def process_json(process: Process) -> dict[str, Any]:
    """A process of this host as status.json names it: `ticks` tells it from a later one with the same pid."""
    return {"pid": process.pid, "host": os.uname().nodename, "started": iso(started(process)), "ticks": process.ticks}


def process_of(found: Mapping[str, Any] | None) -> Process | None:
    """The reverse; None where there is none, or one of another host."""
    if not found or found.get("host") != os.uname().nodename:
        return None
    return Process(int(found.get("pid") or 0), int(found.get("ticks") or 0))


def here(status: Status) -> bool:
    """Whether the job's supervisor is, or was, on this host: only there can anybody tell whether its processes live."""
    supervisor = status.get("supervisor") or {}
    return supervisor.get("host") in (None, os.uname().nodename)


def ranks_of(folder: JobFolder, status: Status) -> Ranks:
    """The ranks that a status names, as their records have them now."""
    hosts = {int(rank): str(facts.get("host")) for rank, facts in status.get("ranks", {}).items()}
    ranks = Ranks.expected(folder, hosts, int(status.get("attempt", 1)))
    ranks.update(time.time())
    return ranks


def asked_for(folder: JobFolder) -> int | None:
    """The exit status that somebody who asked for the end of the job wants it to have."""
    code = read_json(folder.stop_file).get("exit_code")
    return code if isinstance(code, int) else None


def finish(folder: JobFolder, status: Status, ranks: Ranks, asked: int | None, *, watched: bool = True) -> Status:
    """The final status of a job that has ended, written where that is possible; what DeepSpeed left on this host is removed.

    `asked`: the exit status that a stop asked for, None where the job ended by itself. `watched`: somebody saw it end.
    """
    removed = remove_buffers(rank.master for rank in ranks.ranks.values() if rank.master)
    code = ranks.exit_code() if asked is None else asked
    state = "stopped" if asked is not None else "succeeded" if code == 0 else "failed"
    ends = [rank.ended for rank in ranks.ranks.values() if rank.ended]
    now = time.time()
    if not watched:
        now = max(ends, default=now)
        if state == "failed" and ends and not any(rank.state == "ended" for rank in ranks.ranks.values()):
            state = "lost"  # the host went down, or everything was killed at once: nobody can say how it ended
    status = {
        **status,
        "state": state,
        "ended": iso(now),
        "exit_code": code,
        "ranks": {str(number): rank.as_json() for number, rank in sorted(ranks.ranks.items())},
    }
    with suppress(OSError):
        for path in removed:
            folder.append_event(now, "notice", text=f"removed {path}, which DeepSpeed had left in memory")
        folder.append_event(now, "exit", exit_code=code, state=state)
    with suppress(OSError):
        folder.write_status(status)
    return status


def rebuilt(folder: JobFolder) -> Status:
    """A status from what else lies in the folder, where status.json is gone, half-written or of another version.

    Empty where no rank has left a record, by which its processes could be found.
    """
    attempt = max((int(path.name) for path in folder.attempt(2).parent.glob("*") if path.name.isdecimal()), default=1)
    ranks = Ranks.expected(folder, {}, attempt)
    ranks.update(time.time())
    tags = [tag for number in ranks.ranks if isinstance(tag := read_json(folder.record(number, attempt)).get("tag"), str)]
    if not tags:
        return {}
    known = {str(number): rank.as_json() for number, rank in sorted(ranks.ranks.items())}
    began = min((rank.began for rank in ranks.ranks.values() if rank.began), default=time.time())
    return {**initial(tags[0], {}, None), "state": "running", "started": iso(began), "attempt": attempt, "ranks": known}


def refresh(folder: JobFolder) -> Status:
    """The status of a job, brought up to date first.

    Where nobody looks after the job any more (its supervisor was killed), a new supervisor is started if a process of the job lives, and
    the status is completed if none does. On another host than the job's it is returned as it is.
    """
    status = folder.read_status() or rebuilt(folder)
    if not status.get("tag") or status.get("state") in FINAL or not here(status):
        return status
    lock = folder.lock()
    if lock is None:
        return folder.read_status() or status
    try:
        if not folder.read_status():
            with suppress(OSError):  # another version may make sense of it
                folder.status_file.replace(folder.status_file.with_suffix(".unreadable"))
        status = folder.read_status() or status  # it may have ended while we came here
        if status.get("state") in FINAL:
            return status
        from dstui.run.spawn import spawn_notification, spawn_supervisor

        if tagged(status["tag"]):
            with suppress(OSError):  # on a disk that cannot be written nobody can look after it
                if not folder.read_status():
                    folder.write_status(status)
                spawn_supervisor(folder, lock)
            return status
        status = finish(folder, status, ranks_of(folder, status), asked_for(folder), watched=False)
        spawn_notification(folder)
        return status
    finally:
        os.close(lock)
