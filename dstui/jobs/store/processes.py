"""Processes of this host as /proc tells them: who is alive, who belongs to a job, who holds a file.

A process is named by its pid and its start time, so that a pid which was given to somebody else is never mistaken for the old one.
Everything that a job starts carries the job's tag in its environment; that finds a process also in another session or process group.
What a file says of a process is no reason to signal it: that is what its own environment, or its descent, says.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TAG = "DSTUI_JOB"
"""The variable that carries a job's tag in every process of the job."""
SUPERVISES = "DSTUI_SUPERVISES"
"""The variable that carries it in the job's supervisor, which is no part of the job."""
SUPERVISOR = "dstui.jobs.supervisor"
"""The module that a supervisor runs; its folder follows it on the command line."""
NOTIFY = "dstui.jobs.supervisor.notify"
"""The module that tells of the end of a job that has no supervisor."""
HANG_STACKS = "dstui.jobs.supervisor.hang_stacks"
"""The module that reads the stacks of a job whose ranks are silent, once, for its supervisor."""
IN_ALLOCATION = "dstui.jobs.control.in_allocation"
"""The module by which a script of SLURM's becomes the supervisor of a job that was queued."""
PROGRAMS = (SUPERVISOR, NOTIFY, HANG_STACKS, IN_ALLOCATION)
"""Modules of dstui that run as processes of their own. No contract sees an import in them: a test finds each of them."""
SUPERVISORS = (SUPERVISOR, "dstui.jobs.supervise.supervisor", "dstui.run.supervise.supervisor", "dstui.run.supervisor")
"""The same with what older versions of dstui, whose jobs may still run, called it."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process, for ever: `ticks` is its start in clock ticks since boot."""

    pid: int
    ticks: int

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return find(self.pid) == self

    def send(self, number: int) -> None:
        """Signal it, if it is still there and ours. What is signalled is what was looked at, whoever gets its pid in between."""
        handle = _handle(self.pid)
        try:
            with suppress(ProcessLookupError, PermissionError):
                if self.alive and handle is not None:
                    signal.pidfd_send_signal(handle, number)
                elif self.alive:
                    os.kill(self.pid, number)
        finally:
            if handle is not None:
                os.close(handle)

    def words(self) -> list[str]:
        """Its command line; empty where it is gone."""
        with suppress(OSError):
            return [os.fsdecode(word) for word in Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")]
        return []

    def command(self) -> str:
        """Its command line as one text, safe to decode; "" where it is gone."""
        return os.fsencode(" ".join(self.words())).decode("utf-8", "replace").strip()

    def describe(self) -> str:
        """Return pid and command line, for a person."""
        return f"{self.pid} {self.command()[:120] or '(no command line)'}"


def _handle(pid: int) -> int | None:
    """Return a pidfd, so that a reused pid is never signalled; None where the process is gone, or kernel or Python are too old."""
    with suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def find(pid: int) -> Process | None:
    """Return the process with this pid, or None where it is gone or a zombie."""
    facts = _stat(pid)
    return Process(pid, facts[1]) if facts else None


def tagged(tag: str) -> set[Process]:
    """Return the processes of this user that carry the tag."""
    return {process for pid in _pids() if carries(pid, TAG, tag) and (process := find(pid))}


def carries(pid: int, name: str, tag: str) -> bool:
    """Return whether a process says in its environment that it is of a job; False where that cannot be read, as of another user's."""
    with suppress(OSError):
        return f"{name}={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def user_of(pid: int) -> int | None:
    """Return the user whom a process belongs to; None where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


@cache
def boot() -> str:
    """Return what tells this start of the machine from all others: pids and start times begin anew with each."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def processes_visible(uid: int) -> bool:
    """Return whether the processes of a user can be seen from here: /proc may be mounted so that only one's own can."""
    return uid == os.geteuid() or Path("/proc/1/stat").exists()


def descendants(root: int) -> set[Process]:
    """Return everything below a process. Below a child subreaper that includes what its descendants have orphaned."""
    children: dict[int, list[Process]] = {}
    for pid in _pids():
        if facts := _stat(pid):
            children.setdefault(facts[0], []).append(Process(pid, facts[1]))
    found: set[Process] = set()
    level = children.get(root, [])
    while level:
        found.update(level)
        level = [child for process in level for child in children.get(process.pid, [])]
    return found


def compiles(root: int) -> bool:
    """Return whether a process has something compiled: there is a ninja below it that has started a compiler."""
    below = descendants(root)
    ninjas = {process.pid for process in below if _name(process.pid) == "ninja"}
    # The ninja of PyPI was a script once, which starts the real one.
    return any(facts[0] in ninjas and process.pid not in ninjas for process in below if (facts := _stat(process.pid)))


def holders(path: Path) -> set[int]:
    """Return the pids that have a file open or mapped, as far as this user may see."""
    name, found = str(path), set()
    mapped = f" {name}\n".encode()
    for pid in _pids():
        with suppress(OSError):
            if _opens(pid, name) or mapped in Path(f"/proc/{pid}/maps").read_bytes():
                found.add(pid)
    return found


def opened(pid: int, path: Path) -> bool:
    """Return whether one process has a file open."""
    with suppress(OSError):
        return _opens(pid, str(path))
    return False


def reap() -> list[tuple[int, int]]:
    """Collect every child of ours that has ended: (pid, wait status) of each."""
    reaped = []
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            reaped.append(ended)
    return reaped


def _opens(pid: int, name: str) -> bool:
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):  # noqa: PTH208 - one scan of /proc must stay cheap
        with suppress(OSError):
            if os.readlink(f"{folder}/{fd}") == name:  # noqa: PTH115
                return True
    return False


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _name(pid: int) -> str:
    """Return the name of a process, which is that of its program; "" where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    return ""


def _stat(pid: int) -> tuple[int, int] | None:
    """(parent, start in ticks), None where the process is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold anything
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def started(process: Process) -> float:
    """Return when a process started, in seconds since the epoch."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + process.ticks / os.sysconf("SC_CLK_TCK")
