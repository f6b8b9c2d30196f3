"""Find out from the kernel's log whether the kernel killed a process for lack of memory.

A SIGKILL leaves no trace in other logs. /dev/kmsg names each killed process, for those who may read it (usually root).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

KMSG = "/dev/kmsg"
RECORD = 8192
"""The longest record of the kernel's log; each read returns one."""
MOST = 50_000
KILLED = re.compile(r"^\d+,\d+,(\d+),[^;]*;.*(?:[Oo]ut of memory|oom).*: Killed process (\d+) \(")
NEAR = 60.0
"""Seconds between the kernel's message and the shim's record: process ids are reused."""


def killed_for_memory(pid: int, ended: float) -> str | None:
    """Return the line in which the kernel reports that it killed this process at that time; None if there is none or it is unreadable."""
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
            with suppress(BrokenPipeError):  # overwritten before it was read
                yield os.read(fd, RECORD).decode("utf-8", "replace")
    except OSError:
        return  # no more records
    finally:
        os.close(fd)
