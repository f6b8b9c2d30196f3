"""The Python stacks of the living ranks of a job.

py-spy reads them from outside and stops each rank for milliseconds. Where it is missing or may not inspect other processes, the ranks' own
faulthandler writes them: the hook of a rank registers it on a real-time signal named in its record (engine/rank_N.json), and the stacks go
to a file of their own. Without the hook, a script may call `faulthandler.register(signal.SIGUSR2)` itself, with
`cluster.env: {DSTUI_STACKS: SIGUSR2}` in the Plan: then they go to the rank's log. A signal is sent only to a process that handles it,
since it would end any other. Nothing is killed or injected. If a stack is unavailable, the reason and the remedy are returned instead.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.jobs.engine.now import read_now
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import is_own, owner_of
from dstui.jobs.store.processes import Process, tagged, user_of
from dstui.jobs.store.ranks import Ranks
from dstui.jobs.store.status import ranks_of
from dstui.jobs.watch.faulthandler_stacks import await_dump, dump_by_hook, dump_by_signal

DEADLINE = 10.0
"""Seconds for one rank: reading the symbols of torch takes two on a busy machine."""
FAR_LATER, FAR_QUIET = 5.0, 0.6
"""Seconds that other hosts get in addition, and without a further line after which their dump is complete: agents look twice a second."""
AT_ONCE = 4
"""Ranks that are read in parallel."""
HOW = "or allow faulthandler: faulthandler.register(signal.SIGUSR2) in the script, cluster.env: {DSTUI_STACKS: SIGUSR2} in the Plan"
INSTALL = "py-spy is not installed: python -m pip install py-spy (or dstui[debug])"
YAMA = "kernel.yama.ptrace_scope"
PACKAGE = re.compile(r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|^<|/dstui/(?:jobs|run)/(?:(?:supervise|rank)/)?shim\.py$")
"""Files that are not part of the user's program."""
STDLIB_THREAD = re.compile(r"/threading\.py$")
"""The outermost frame of every thread."""
HOOK = re.compile(r"/hook/sitecustomize\.py$")
"""The hook that wraps DeepSpeed's engine (dstui/jobs/rank/hook): its frames and its thread are hidden."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a rank, with its frames from innermost to outermost: `wait (torch/distributed/store.py:12)`."""

    name: str
    active: bool
    """True if it was running, not waiting."""
    frames: tuple[str, ...]
    own: str = ""
    """The innermost frame outside of packages: a line of the user's program."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A rank's threads, the main one first, or the reason why they are unknown."""

    rank: int
    host: str
    threads: tuple[Thread, ...] = ()
    reason: str = ""
    halted: bool = False
    """True if a signal stopped its process, so that it cannot reach any collective."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui stacks --json` documents."""
        threads = [
            {"name": thread.name, "active": thread.active, "frames": list(thread.frames), "own": thread.own or None}
            for thread in self.threads
        ]
        return {"rank": self.rank, "host": self.host, "threads": threads, "reason": self.reason or None}


Answer = tuple[tuple[Thread, ...], str]
"""The threads of a process, or the reason why they are unknown."""
Way = Callable[[int, Process], Answer]
"""A way to the stacks of a rank, by its number and process."""


def find_program() -> str | None:
    """Return the path of py-spy beside the interpreter, else from the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def stacks(
    folder: JobFolder, only: Collection[int] = (), *, program: str | None = None, deadline: float = DEADLINE, hook_first: bool = False
) -> list[Stack]:
    """Return the stacks of a job's living ranks by rank, restricted to `only` if given. Empty if no rank lives.

    `program`: another py-spy than that of `find_program`. It has `deadline` seconds per rank. `hook_first`: prefer the ranks' hooks to
    py-spy, which takes seconds on a busy machine.
    """
    status = folder.read_status()
    ranks = ranks_of(folder, status)
    wanted = [number for number in sorted(ranks.living) if not only or number in only]
    remote = [number for number in wanted if ranks.ranks[number].host != os.uname().nodename]
    owner = owner_of(folder)  # a folder of another user must not lead to processes of this user
    members = {process.pid: process for process in tagged(str(status.tag if status else None)) if user_of(process.pid) == owner}
    own = is_own(folder, status)
    here = LocalStacks(folder, ranks, members, own, program or find_program(), deadline, hook_first)
    elsewhere = RemoteStacks(folder, ranks, remote, deadline) if remote and own else None

    def read(number: int) -> Stack:
        if number not in remote:
            return here.read(number)
        if elsewhere is not None:
            return elsewhere.read(number)
        host = ranks.ranks[number].host
        return Stack(number, host, reason=f"it runs on {host}: call `dstui stacks` there")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(read, wanted))


@dataclass(frozen=True)
class LocalStacks:
    """The stacks of ranks on this host."""

    folder: JobFolder
    ranks: Ranks
    members: Mapping[int, Process]
    """Pid -> process of the job."""
    own: bool
    """True if this user may signal the ranks."""
    program: str | None
    deadline: float
    hook_first: bool

    def read(self, number: int) -> Stack:
        """Return the stacks of one rank."""
        rank = self.ranks.ranks[number]
        member = self.members.get(rank.pid) if rank.pid is not None else None
        if member is None:
            return Stack(number, rank.host, reason="it has just ended, or it belongs to another user")
        halted, reason = is_halted(member.pid), ""
        for way in self._ways(halted):
            threads, why = way(number, member)
            if threads:
                return Stack(number, rank.host, threads, halted=halted)
            reason = why or reason
        if halted:
            return Stack(number, rank.host, reason=f"a signal has stopped its process: kill -CONT {member.pid} resumes it", halted=True)
        return Stack(number, rank.host, reason=f"{reason}; {HOW}")

    def _ways(self, halted: bool) -> Sequence[Way]:
        """Return the ways to the stacks, the preferred one first. A stopped process receives no signal."""
        if halted or not self.own:
            return (self._by_program,)
        ways = (self._by_hook, self._by_program) if self.hook_first else (self._by_program, self._by_hook)
        return (*ways, self._by_signal)

    def _by_program(self, _number: int, member: Process) -> Answer:
        return dump(self.program, member.pid, self.deadline, self.folder) if self.program else ((), INSTALL)

    def _by_hook(self, number: int, member: Process) -> Answer:
        attempt = self.ranks.attempt
        now, written = read_now(self.folder.engine(number, attempt, "json")), self.folder.engine(number, attempt, "stacks")
        return tuple(_threads(dump_by_hook(member, now, written, self.deadline))), ""

    def _by_signal(self, number: int, member: Process) -> Answer:
        return tuple(_threads(dump_by_signal(member, self.folder.log(number, self.ranks.attempt), self.deadline))), ""


class RemoteStacks:
    """The stacks of ranks on other hosts: the supervisor's agents there signal the hooks, and send home what those write."""

    def __init__(self, folder: JobFolder, ranks: Ranks, remote: Sequence[int], deadline: float) -> None:
        self._ranks, self._until = ranks, time.monotonic() + deadline + FAR_LATER
        self._files = {number: folder.engine(number, ranks.attempt, "stacks") for number in remote}
        self._sizes = {number: path.stat().st_size if path.exists() else 0 for number, path in self._files.items()}
        launch = folder.read_launch()
        self._problem = "run.observe is off in its Plan" if launch and launch.observe == "off" else ""
        try:
            folder.ask_for_stacks()
        except OSError as error:
            self._problem = f"they cannot be requested ({folder.stacks_request}: {error.strerror})"

    def read(self, number: int) -> Stack:
        """Wait for the stacks of one rank."""
        host = self._ranks.ranks[number].host
        if self._problem:
            return Stack(number, host, reason=f"it runs on {host}, and {self._problem}")
        found = await_dump(self._files[number], self._sizes[number], self._until - time.monotonic(), FAR_QUIET)
        return Stack(number, host, tuple(_threads(found)), "" if found else f"it runs on {host}, and its hook gave no answer")


def is_halted(pid: int) -> bool:
    """Return whether a signal (SIGSTOP, Ctrl-Z) has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def dump(program: str, pid: int, deadline: float, folder: JobFolder) -> Answer:
    """Return the threads of one process, or the reason why they are unknown."""
    try:
        done = subprocess.run([program, "dump", "--json", "--pid", str(pid)], capture_output=True, timeout=deadline, check=False)
    except subprocess.TimeoutExpired:
        return (), f"py-spy gave no answer in {deadline:g} s: the process may be stuck in the kernel"
    except OSError as error:
        return (), f"{program} cannot be started: {error.strerror}"
    try:
        return tuple(_threads(json.loads(done.stdout))), ""
    except (ValueError, KeyError, TypeError):
        return (), why_not(done.stderr.decode(errors="replace"), ptrace_scope(), str(folder.path))


def _threads(found: Iterable[dict[str, Any]]) -> list[Thread]:
    threads = []
    for facts in found:
        whole = facts["frames"]
        facts["frames"] = [frame for frame in whole if not HOOK.search(str(frame["filename"]))]
        if facts["frames"] != whole and all(STDLIB_THREAD.search(str(frame["filename"])) for frame in facts["frames"]):
            continue  # the thread of the hook
        name = sanitise(str(facts.get("thread_name") or f"thread {facts.get('thread_id')}"))
        frames = [sanitise(f"{frame['name']} ({_short(frame)}:{frame['line']})") for frame in facts["frames"]]
        own = next((text for text, frame in zip(frames, facts["frames"], strict=True) if not PACKAGE.search(str(frame["filename"]))), "")
        threads.append(Thread(name, bool(facts.get("active")), tuple(frames), own))
    return sorted(threads, key=lambda thread: thread.name != "MainThread")


def _short(frame: dict[str, Any]) -> str:
    """Shorten a file name as py-spy does: from its package on."""
    return str(frame.get("short_filename") or frame["filename"])


def ptrace_scope() -> int:
    """Return how far the kernel restricts inspecting processes: 0 to the same user, 1 to children, 2 to root, 3 to nobody."""
    try:
        return int(Path("/proc/sys", *YAMA.split(".")).read_text())
    except (OSError, ValueError):
        return 0


def why_not(reported: str, scope: int, folder: str = "") -> str:
    """Return why py-spy could not read, and what to do. `folder`: of the job, which another user's index does not know."""
    if "ermission" not in reported:
        return f"py-spy: {sanitise(reported.strip().rpartition(chr(10))[2]) or 'it printed nothing'}"
    if scope == 3:
        return f"this machine allows no inspection of processes until it is restarted ({YAMA} is 3)"
    remedy = f"sudo {sys.executable} -m dstui stacks {shlex.quote(folder)}"
    if scope:
        return f"this user may not inspect processes ({YAMA} is {scope}): {remedy}, or sudo sysctl {YAMA}=0"
    return f"this user may not inspect processes: {remedy}; in a container, start it with --cap-add SYS_PTRACE"


def report(found: Iterable[Stack], *, every_thread: bool = False) -> str:
    """Format stacks: ranks with the same place are grouped, the smallest groups first."""
    groups: dict[tuple[tuple[Thread, ...], str], list[int]] = {}
    for stack in found:
        shown = stack.threads if every_thread else tuple(Thread("", False, thread.frames) for thread in stack.threads[:1])
        groups.setdefault((shown, stack.reason), []).append(stack.rank)
    lines = []
    for (threads, reason), ranks in sorted(groups.items(), key=lambda group: (len(group[1]), group[1])):
        lines.append(f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}{': ' + reason if reason else ''}")
        for thread in threads:
            if every_thread:
                lines.append(f"  {thread.name} ({'running' if thread.active else 'waiting'})")
            lines += [f"    {frame}" for frame in thread.frames]
    return "\n".join(lines)
