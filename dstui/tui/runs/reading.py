"""Read the runs for the table, repeatedly, in a thread, the newest first. The thread also makes the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from threading import Event, Lock

from dstui.base.dataclass import dataclass
from dstui.jobs.store.index import listing_stamp
from dstui.runs.columns import USUAL, Column, column
from dstui.runs.conditions import Condition, chosen
from dstui.runs.find import find_runs
from dstui.runs.kept import Kept
from dstui.runs.run import Run, link
from dstui.runs.table import cells, fitting, lines, ordered

PAUSE = 2.0
"""The minimum of seconds between two reads,"""
SHARE = 10
"""and this many times the duration of a read, so that many runs do not keep a core busy."""
ENDED_PAUSE, ENDED_SHARE = 10.0, 1000
"""The same while every run has ended and none is added: then only their ages change. Every PAUSE, two files are checked for new runs."""
AT_ONCE = 0.3
"""Seconds of reading after which the part read so far is drawn."""
CHEAP = frozenset({"state", "name", "age", "took", "ranks", "hosts"})
"""Columns for which only status.json is read."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The requested view of the table."""

    sort: str = "started"
    reverse: bool = True
    conditions: tuple[Condition, ...] = ()
    text: str = ""
    """The conditions as they were typed."""
    columns: tuple[str, ...] = ()
    """The columns, in their order; those that fit where none are named."""
    width: int = 80


@dataclass(frozen=True, slots=True)
class Table:
    """The content to draw: a title, and a line for each run."""

    runs: Sequence[Run] = ()
    columns: Sequence[Column] = ()
    texts: Sequence[str] = field(default=("",))
    """The header, then the lines of the runs."""
    all: int = 0
    """The number of runs, including filtered ones."""
    unread: int = 0


class Reading:
    """The reader. It runs in a thread of its owner and delivers tables."""

    def __init__(self, hand_over: Callable[[Table], object]) -> None:
        self._hand_over = hand_over
        self._wish, self._lock = Wish(), Lock()
        self._wanted, self._over = Event(), False
        self._read: dict[str, Run] = {}

    def want(self, wish: Wish) -> None:
        """Request this view from now on."""
        with self._lock:
            self._wish = wish
        self._wanted.set()

    def end(self) -> None:
        """Stop reading."""
        self._over = True
        self._wanted.set()

    def work(self) -> None:
        """Read until `end` is called; the body of the thread."""
        kept = Kept()
        while not self._over:
            began, stamp = time.monotonic(), listing_stamp()
            runs = find_runs(kept)
            for unread in self._parts(runs):
                if self._over:
                    return
                self._tell(runs, unread)
            kept.save()
            took = time.monotonic() - began
            if any(run.active or run.status.orphaned for run in runs):
                self._wait(runs, max(PAUSE, SHARE * took))
            else:
                until = time.monotonic() + max(ENDED_PAUSE, ENDED_SHARE * took)
                while not self._over and time.monotonic() < until and stamp == listing_stamp():
                    self._wait(runs, PAUSE)

    def _wait(self, runs: list[Run], seconds: float) -> None:
        """Wait for so long, and deliver the views that are requested meanwhile."""
        until = time.monotonic() + seconds
        while not self._over and (left := until - time.monotonic()) > 0:
            if self._wanted.wait(left) and not self._over:
                self._wanted.clear()
                self._tell(runs, 0)

    def _parts(self, runs: list[Run]) -> Iterator[int]:
        """Read the runs, the newest first; yield the number of unread ones whenever there is something to draw."""
        reported = time.monotonic()
        if any(str(run.folder.path) not in self._read for run in runs):
            yield len(runs)
        for number, run in enumerate(reversed(runs), 1):
            for name in {*USUAL, *self._wish.columns}:
                column(name).value(run)
            self._read[str(run.folder.path)] = run
            if time.monotonic() - reported > AT_ONCE:
                yield len(runs) - number
                reported = time.monotonic()
            if self._over:
                return
        link(runs)
        yield 0

    def _tell(self, runs: list[Run], unread: int) -> None:
        with self._lock:
            wish = self._wish
        names = list(wish.columns or USUAL)
        known = runs[unread:]  # the newest are read first
        if not known and runs:
            known, names = runs, [name for name in names if name in CHEAP]
            wish = Wish(columns=wish.columns, width=wish.width)
        columns = tuple(column(name) for name in names)
        shown = ordered(chosen(known, wish.conditions), column(wish.sort), reverse=wish.reverse)
        texts = cells(shown, columns)
        if not wish.columns:
            texts, columns = fitting(texts, columns, wish.width)
        self._hand_over(Table(shown, columns, lines(texts, columns, wish.width), len(runs), unread))
