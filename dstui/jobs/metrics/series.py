"""The metrics of a whole run for a plot: read from the logs of every attempt, in slices and bounded memory, then as they grow.

For a worker thread: `advance` reads on while another thread reads the curves. For each metric the mean over all ranks is kept with its
minimum and maximum, and for the first ranks their own values.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from dstui.jobs.metrics.buckets import Buckets, Fault, Point
from dstui.jobs.metrics.engine_metrics import EngineMetrics
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.logs.tail import Tail, allow_files
from dstui.plan.patterns import METRICS

CHUNK = 1 << 16
"""Bytes per read: the metrics in them are taken over in one go, in a few milliseconds."""
KEPT_RANKS = 16
"""Ranks whose own values are kept: more lines cannot be distinguished in a plot."""
KEPT_ATTEMPTS = 8
WHOLE = 256 << 20
"""Bytes of logs that are read completely, in a minute or two. Larger logs are sampled at equal distances, a thousand or more pieces of
each."""
RESCAN_AFTER = 1.0
"""Seconds between two searches for new logs."""


class Curve(NamedTuple):
    """One line of a plot: of an attempt and a rank, with None for all ranks together."""

    attempt: int
    rank: int | None
    points: list[Point]
    faults: list[Fault]


class MetricSeries:
    """The metrics of one run."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        self.left_out = 0
        """Earlier attempts that are not read."""
        self.stride = 1
        """Of the initial content, one of this many pieces is read."""
        self.complete = False
        """True if the end of every log was reached once."""
        self.notices: list[str] = []
        self.used_until = 0.0
        """The time of the last sample that was added of what the ranks used."""
        self._measure = Measure.of(folder)
        self._logs: dict[tuple[int, int], _Log] = {}
        self._series: dict[tuple[int, int | None, str], Buckets] = {}
        self._tellers: dict[str, set[int]] = {}
        self._kept: set[int] = set()
        self._scanned = float("-inf")
        self.ended = self._closed = False
        """True if the job has ended and all of its logs were read."""
        self._reading, self._lock = Lock(), Lock()

    def advance(self, seconds: float) -> bool:
        """Read on for about `seconds`. Return False if there was nothing new."""
        with self._reading:
            return not self._closed and self._advance(seconds)

    def _advance(self, seconds: float) -> bool:
        deadline, found = time.monotonic() + seconds, False
        if time.monotonic() - self._scanned >= RESCAN_AFTER:
            self._find_logs()
        for (attempt, _), log in sorted(self._logs.items()):
            while (metrics := log.read(self._measure)) is not None:
                found = True
                self._take(attempt, metrics)
                if time.monotonic() >= deadline:
                    return True
        self.notices += self._measure.notices()
        self.complete = True
        return found or self._flush()

    def _flush(self) -> bool:
        """Process the last incomplete lines, once, after the job's end. Return False while it runs."""
        if self.ended or not self.folder.has_ended:
            return False
        self.ended = True
        for (attempt, _), log in self._logs.items():
            self._take(attempt, log.last(self._measure))
        return True

    def _find_logs(self) -> None:
        self._scanned = time.monotonic()
        paths = logs_of(self.folder)
        latest = max((attempt for attempt, _ in paths), default=1)
        self.left_out = max(latest - KEPT_ATTEMPTS, 0)
        new = {
            key: _Log(path, EngineMetrics(self.folder, key[1], key[0]))
            for key, path in paths.items()
            if key[0] > self.left_out and key not in self._logs
        }
        if not self._logs:
            self.stride = -(-sum(log.size for log in new.values()) // WHOLE) or 1
            for log in new.values():
                log.leave_out(self.stride)
        self._logs |= new
        allow_files(256 + 3 * len(self._logs))

    def _take(self, attempt: int, metrics: list[Metric]) -> None:
        with self._lock:
            for rank, step, name, value in ((m.rank, m.step, m.name, m.value) for m in metrics):
                self._tellers.setdefault(name, set()).add(rank)
                if len(self._kept) < KEPT_RANKS:
                    self._kept.add(rank)
                for whose in (None, rank) if rank in self._kept else (None,):
                    key = (attempt, whose, name)
                    if key not in self._series:
                        self._series[key] = Buckets()
                    self._series[key].add(step, value)

    def add(self, metrics: list[Metric], attempt: int = 1) -> None:
        """Add numbers that are in no line."""
        self._take(attempt, metrics)

    def close(self) -> None:
        """Close the files. Nothing can be read afterwards."""
        with self._reading:
            self._closed = True
            for log in self._logs.values():
                log.close()

    # Curves

    @property
    def read(self) -> tuple[int, int]:
        """Bytes read, and total bytes."""
        logs = list(self._logs.values())
        return sum(log.taken for log in logs), sum(log.size for log in logs)

    def names(self) -> dict[str, float | None]:
        """Return the metrics, dstui's own first, with their newest values, each of the first rank that has it."""
        with self._lock:
            keys = sorted(self._series, key=lambda key: (key[0], key[1] is not None, -(key[1] or 0)))  # later values count
            latest = {key[2]: self._series[key].last for key in keys}
        order = list(METRICS)
        return dict(sorted(latest.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))

    def tellers(self, name: str) -> list[int]:
        """Return the ranks that have a metric."""
        with self._lock:
            return sorted(self._tellers.get(name, ()))

    def curves(self, name: str, *, each: bool = False) -> list[Curve]:
        """Return a metric over the steps, attempt by attempt. `each`: of every kept rank, instead of all together."""
        with self._lock:
            keys = sorted((a, -1 if r is None else r) for a, r, n in self._series if n == name and (r is None) != each)
            found = [(a, None if r < 0 else r) for a, r in keys]
            return [Curve(a, r, self._series[a, r, name].points, self._series[a, r, name].faults) for a, r in found]


class _Log:
    """One log with the position of reading, and the engine's report, which takes precedence."""

    def __init__(self, path: Path, engine: EngineMetrics) -> None:
        self.rank, self.path, self.engine = engine.rank, path, engine
        self.tail, self.view = Tail(path, every_state=True), RankView("")
        self.taken = 0
        self._gap, self._until = 0, 0

    def leave_out(self, stride: int) -> None:
        """Read one piece of `stride` of the present content; what is written later is read in full."""
        self._gap, self._until = CHUNK * (stride - 1), self.size

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return self.taken

    def read(self, measure: Measure) -> list[Metric] | None:
        """Return the metrics of the next piece; None if there is none."""
        if metrics := self.engine.read(self.view, CHUNK):
            return metrics
        self.view.engine_step = None  # lines that are read later name their step themselves
        lines = self.tail.read(CHUNK, measure.wanted)
        self.taken += self.tail.taken
        if not self.tail.taken:
            return None
        if self._gap and self.taken + self._gap + CHUNK < self._until:
            self.tail.skip(self._gap)
            self.taken += self._gap
        return [*measured(lines, self.view, self.rank, measure)]

    def last(self, measure: Measure) -> list[Metric]:
        """Return the metrics of an incomplete last line of an ended job."""
        return [*measured(self.tail.flush(), self.view, self.rank, measure)]

    def close(self) -> None:
        """Close both files."""
        self.tail.close()
        self.engine.close()


def measured(lines: list[str], view: RankView, rank: int, measure: Measure) -> Iterator[Metric]:
    """Yield the metrics of further lines. Repetitions by a progress bar within a step are yielded once."""
    for line in lines:
        for metric in measure(view, rank, line):
            if "%|" not in line or view.reported.get(metric.name) != (metric.step, metric.value):
                view.reported[metric.name] = metric.step, metric.value
                yield metric


def logs_of(folder: JobFolder) -> dict[tuple[int, int], Path]:
    """Return the logs of all attempts by attempt and rank, in order."""
    attempts = [int(path.name) for path in folder.attempt(2).parent.glob("*") if path.name.isdecimal()]
    found = {}
    for attempt in (1, *sorted(attempts)):
        for path in folder.log(0, attempt).parent.glob("rank_*.log"):
            number = path.stem.removeprefix("rank_")
            if number.isdecimal() and path.is_file():
                found[attempt, int(number)] = path
    return dict(sorted(found.items()))
