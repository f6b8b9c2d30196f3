"""The stacks that a rank's own faulthandler writes at a signal: into a file of the hook, or into the rank's log.

A signal is sent only to a process that handles it, since it would end any other.
"""

from __future__ import annotations

import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.regular_files import read_regular
from dstui.jobs.engine.now import RankNow
from dstui.jobs.store.processes import Process

ALLOWED = "DSTUI_STACKS"
QUIET = 0.2
"""Seconds without a further line after which a dump is complete."""
HEAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[[^]]*\])? \(most recent call first\):$")
FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


def dump_by_hook(rank: Process, now: RankNow | None, stacks: Path, deadline: float) -> list[dict[str, Any]]:
    """Return the threads of a rank of the user's own job by its hook, in py-spy's form; none without a hook."""
    if now is None or now.signal is None or now.pid != rank.pid or not _handles(rank.pid, now.signal):
        return []
    return _dump(rank, now.signal, stacks, deadline)


def dump_by_signal(rank: Process, log: Path, deadline: float) -> list[dict[str, Any]]:
    """Return the threads by a signal that the Plan allows; none without it, or if nothing arrives in `deadline` seconds."""
    number = _allowed(rank.pid)
    return _dump(rank, number, log, deadline) if number is not None and _handles(rank.pid, number) else []


def _dump(rank: Process, number: int, path: Path, deadline: float) -> list[dict[str, Any]]:
    with suppress(OSError):
        at = path.stat().st_size
        rank.send(number)
        return await_dump(path, at, deadline)
    return []


def await_dump(path: Path, at: int, deadline: float, quiet: float = QUIET) -> list[dict[str, Any]]:
    """Return the threads of a dump that is written from `at` on; none if nothing arrives in `deadline` seconds."""
    reported, until = b"", time.monotonic() + deadline
    while time.monotonic() < until:
        time.sleep(quiet)
        with suppress(OSError):
            before, reported = reported, read_regular(path, at)
            if reported == before and (threads := parse(reported.decode("utf-8", "replace"))):
                return threads
    return []


def parse(text: str) -> list[dict[str, Any]]:
    """Parse the output of faulthandler to py-spy's form."""
    threads: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = []
    for line in text.splitlines():
        if head := HEAD.match(line):
            frames = []
            threads.append({"thread_id": head[1], "frames": frames})
        elif threads and (frame := FRAME.match(line)):
            path = frame[1].rpartition("-packages/")[2]
            short = path if path != frame[1] else path.rpartition("/")[2]
            frames.append({"name": frame[3], "filename": frame[1], "short_filename": short, "line": int(frame[2])})
    for thread in threads:
        if thread["frames"] and thread["frames"][-1]["name"] in ("<module>", "_run_module_as_main"):
            thread["thread_name"] = "MainThread"
    return threads


def _allowed(pid: int) -> signal.Signals | None:
    """Return the signal named in the environment of a rank."""
    with suppress(OSError, KeyError, StopIteration):
        variables = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
        return signal.Signals[next(v.partition("=")[2] for v in variables if v.startswith(f"{ALLOWED}="))]
    return None


def _handles(pid: int, number: int) -> bool:
    """Return whether a process handles a signal, from /proc."""
    with suppress(OSError, ValueError, StopIteration):
        caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False
