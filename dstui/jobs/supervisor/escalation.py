"""Ending the processes of a job: ask, then SIGTERM, then SIGKILL, until nothing is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from dstui.jobs.store.processes import Process, find
from dstui.jobs.store.ranks import Ranks

STEP = 5.0
"""Seconds on each step of the escalation before the next."""
GRACE = 0.5
"""Seconds for launchers and helpers once the ranks that were asked are gone; a launcher takes three to go by itself."""
LAUNCHER = "deepspeed.launcher."
POLL = 0.1

Members = Callable[[], set[Process]]


def nothing() -> None:
    """Between two looks there is nothing else to do."""


def escalate(members: Members, ask: Iterable[Process] = (), tick: Callable[[], object] = nothing) -> set[Process]:
    """End all members: those in `ask` get a SIGTERM and time, then everyone gets it, then SIGKILL. Returns who is left.

    Asking goes to all ranks at once and to nobody else: a script that saves a checkpoint on SIGTERM needs its peers for it. DeepSpeed's
    launcher gets no SIGTERM, but its end: it has nothing to save, and would only leave a traceback of its own.
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
    """Wait until nobody is left, at most so long, signalling whom each look finds; who is left at the end.

    Two empty looks count: one may fall between a fork and what the child becomes.
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
    """Return the living ranks themselves (not their shims): whom to ask first. Only `members` of the job, whomever their records name."""
    living = (ranks.ranks[number].pid for number in ranks.living if not ranks.unseen)
    return [process for pid in living if pid and (process := find(pid)) in members and process]
