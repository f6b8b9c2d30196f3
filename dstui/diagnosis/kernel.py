"""The kernel's own word: whether it was the kernel that killed a process, because memory ran out.

A SIGKILL leaves no trace in any log; /dev/kmsg names each process that the kernel killed, for whoever may read it (root, mostly).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

KMSG = "/dev/kmsg"
RECORD = 8192
"""No record of the kernel's log is longer; each read gives one."""
MOST = 50_000
KILLED = re.compile(r"^\d+,\d+,(\d+),[^;]*;.*(?:[Oo]ut of memory|oom).*: Killed process (\d+) \(")
NEAR = 60.0
"""Seconds between the kernel's word and what the shim noted: process ids are given again."""


def killed_for_memory(pid: int, ended: float) -> str | None:
    """The line in which the kernel says that it killed this process about then; None where it does not say so, or may not be read."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return find_kill(_records(), pid, ended - booted)


def find_kill(records: Iterable[str], pid: int, ended: float) -> str | None:
    """Return the record of a kill of this process; `ended`: seconds since boot."""
    for record in records:
        found = KILLED.match(record)
        if found and int(found[2]) == pid and abs(int(found[1]) / 1e6 - ended) < NEAR:
            return record.partition(";")[2].strip()
    return None


def _records() -> Iterator[str]:
    try:
        fd = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(MOST):
            with suppress(BrokenPipeError):  # overwritten before we came to it
                yield os.read(fd, RECORD).decode("utf-8", "replace")
    except OSError:
        return  # no more
    finally:
        os.close(fd)
