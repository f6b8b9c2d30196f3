"""End the processes of a job: ask, then SIGTERM, then SIGKILL, until none is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from dstui.jobs.store.processes import Process, find
from dstui.jobs.store.ranks import Ranks

STEP = 5.0
"""Seconds for each step of the escalation."""
GRACE = 0.5
"""Seconds for launchers and helpers after the asked ranks are gone. A launcher takes three to end by itself."""
LAUNCHER = "deepspeed.launcher."
POLL = 0.1

Members = Callable[[], set[Process]]


def nothing() -> None:
    """Do nothing between two looks."""


def escalate(members: Members, ask: Iterable[Process] = (), tick: Callable[[], object] = nothing) -> set[Process]:
    """End all members: first SIGTERM and some time for those in `ask`, then SIGTERM for all, then SIGKILL. Return the remaining ones.

    All ranks and no other processes are asked at once: a script that saves a checkpoint on SIGTERM needs its peers. DeepSpeed's launcher
    gets no SIGTERM but is killed: it has nothing to save, and would only print a traceback.
    """
    asked = set(ask)
    for process in asked:
        process.send(signal.SIGTERM)
    until_gone(lambda: {process for process in asked if process.alive}, STEP, tick)
    left = until_gone(members, GRACE if asked else 0.0, tick)
    if left:
        for process in left:
            process.send(signal.SIGKILL if LAUNCHER in process.command() else signal.SIGTERM)
        left = until_gone(members, STEP, tick)
    return until_gone(members, STEP, tick, signal.SIGKILL) if left else left


def until_gone(members: Members, seconds: float, tick: Callable[[], object] = nothing, number: int = 0) -> set[Process]:
    """Wait at most `seconds` until no process is left, signalling all that each look finds. Return the remaining ones.

    Two empty looks are needed: one may fall between a fork and an exec.
    """
    deadline = time.monotonic() + seconds
    empty = 0
    while True:
        tick()
        left = members()
        empty = 0 if left else empty + 1
        if empty == 2 or (left and time.monotonic() >= deadline):
            return left
        if number:
            for process in left:
                process.send(number)
        time.sleep(POLL)


def rank_processes(ranks: Ranks, members: set[Process]) -> list[Process]:
    """Return the living ranks (not their shims), which are asked first. Only `members` of the job count, whatever the records name."""
    living = (ranks.ranks[number].pid for number in ranks.living if not ranks.unseen)
    return [process for pid in living if pid and (process := find(pid)) in members and process]
