"""Processes of this host from /proc: which live, which belong to a job, which hold a file.

A process is identified by pid and start time, so that a reused pid is never mistaken for the old process. Every process of a job carries
the job's tag in its environment, by which it is found also in another session or process group. Processes are signalled because of their
own environment or descent, never because a file names them.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from dstui.base.dataclass import dataclass

TAG = "DSTUI_JOB"
"""The variable with a job's tag in every process of the job."""
SUPERVISES = "DSTUI_SUPERVISES"
"""The variable with the tag in the job's supervisor, which is not part of the job."""
SUPERVISOR = "dstui.jobs.supervisor"
"""The module of a supervisor; the job folder follows it on the command line."""
NOTIFY = "dstui.jobs.supervisor.notify"
"""The module that announces the end of a job without a supervisor."""
HANG_STACKS = "dstui.jobs.supervisor.hang_stacks"
"""The module that reads the stacks of a silent job once, for its supervisor."""
IN_ALLOCATION = "dstui.jobs.control.in_allocation"
"""The module that SLURM's job script runs as the supervisor of a queued job."""
PROGRAMS = (SUPERVISOR, NOTIFY, HANG_STACKS, IN_ALLOCATION)
"""Modules of dstui that run as processes of their own. They are started by name, without an import, so a test checks that each exists."""
SUPERVISORS = (SUPERVISOR, "dstui.jobs.supervise.supervisor", "dstui.run.supervise.supervisor", "dstui.run.supervisor")
"""Module names of supervisors, including those of older versions of dstui, whose jobs may still run."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process, uniquely identified: `ticks` is its start in clock ticks since boot."""

    pid: int
    ticks: int

    @property
    def alive(self) -> bool:
        """Return whether it still runs (a zombie does not)."""
        return find(self.pid) == self

    def send(self, number: int) -> None:
        """Signal it if it still exists and belongs to this user. A pidfd ensures that a reused pid is never signalled."""
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
        """Return its command line; empty if it is gone."""
        with suppress(OSError):
            return [os.fsdecode(word) for word in _read(self.pid, "cmdline").split(b"\0")]
        return []

    def command(self) -> str:
        """Return its command line as one text, safe to decode; "" if it is gone."""
        return os.fsencode(" ".join(self.words())).decode("utf-8", "replace").strip()

    def describe(self) -> str:
        """Return pid and command line as text."""
        return f"{self.pid} {self.command()[:120] or '(no command line)'}"


def _handle(pid: int) -> int | None:
    """Return a pidfd, so that a reused pid is never signalled; None if the process is gone, or kernel or Python are too old."""
    with suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def find(pid: int) -> Process | None:
    """Return the process with this pid; None if it is gone or a zombie."""
    facts = _stat(pid)
    return Process(pid, facts[1]) if facts else None


def tagged(tag: str) -> set[Process]:
    """Return the processes of this user that carry the tag."""
    return {process for pid in pids() if carries(pid, TAG, tag) and (process := find(pid))}


def carries(pid: int, name: str, tag: str) -> bool:
    """Return whether a process has a job's tag in its environment; False if that is unreadable, as for another user's process."""
    with suppress(OSError):
        return f"{name}={tag}".encode() in _read(pid, "environ").split(b"\0")
    return False


def user_of(pid: int) -> int | None:
    """Return the user of a process; None if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


@cache
def boot() -> str:
    """Return the id of this boot of the machine: pids and start times start again with each."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def processes_visible(uid: int) -> bool:
    """Return whether the processes of a user are visible: /proc may be mounted so that only one's own are."""
    return uid == os.geteuid() or Path("/proc/1/stat").exists()


def descendants(root: int) -> set[Process]:
    """Return all descendants of a process. For a child subreaper they include orphans of its descendants."""
    children: dict[int, list[Process]] = {}
    for pid in pids():
        if facts := _stat(pid):
            children.setdefault(facts[0], []).append(Process(pid, facts[1]))
    found: set[Process] = set()
    level = children.get(root, [])
    while level:
        found.update(level)
        level = [child for process in level for child in children.get(process.pid, [])]
    return found


def compiles(root: int) -> bool:
    """Return whether a process runs a compilation: a descendant is a ninja that has started a compiler."""
    below = descendants(root)
    ninjas = {process.pid for process in below if _name(process.pid) == "ninja"}
    # The ninja of PyPI was once a script that starts the real one.
    return any(facts[0] in ninjas and process.pid not in ninjas for process in below if (facts := _stat(process.pid)))


def holders(path: Path) -> set[int]:
    """Return the pids that have a file open or mapped, as far as this user may see."""
    name, found = str(path), set()
    mapped = f" {name}\n".encode()
    for pid in pids():
        with suppress(OSError):
            if _opens(pid, name) or mapped in _read(pid, "maps"):
                found.add(pid)
    return found


def opened(pid: int, path: Path) -> bool:
    """Return whether a process has a file open."""
    with suppress(OSError):
        return _opens(pid, str(path))
    return False


def reap() -> list[tuple[int, int]]:
    """Collect all ended children: (pid, wait status) of each."""
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


def pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _read(pid: int, name: str) -> bytes:
    """Return the content of a file of a process. Raises OSError. With pathlib a scan of /proc would take twice as long."""
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()


def _name(pid: int) -> str:
    """Return the name of a process, which is that of its program; "" if it is gone."""
    with suppress(OSError):
        return _read(pid, "comm").decode(errors="replace").rstrip("\n")
    return ""


def _stat(pid: int) -> tuple[int, int] | None:
    """Return (parent, start in ticks); None if the process is gone or a zombie."""
    try:
        text = _read(pid, "stat")
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may contain anything
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def started(process: Process) -> float:
    """Return the start of a process in seconds since the epoch."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + process.ticks / os.sysconf("SC_CLK_TCK")
