"""Values over steps in bounded memory for runs of any length: at most LIMIT buckets, which double in width when there are more."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

LIMIT = 1024
"""Buckets of one series: several for each cell of the widest plot. Up to this many steps every value is kept."""
FARTHEST = 1 << 62
"""Steps are cut to this number."""


class Point(NamedTuple):
    """Neighbouring steps: their centre, and the mean, minimum and maximum of the values."""

    step: float
    mean: float
    low: float
    high: float


class Fault(NamedTuple):
    """A value that is not a number (`nan`, `inf` or `-inf`) and its step (the first of its bucket)."""

    step: int
    kind: str


class Buckets:
    """One series. Steps may arrive in any order and repeatedly. Takes 48 bytes a bucket."""

    __slots__ = ("_counts", "_faults", "_highs", "_lows", "_places", "_steps", "_sums", "last", "width")

    def __init__(self) -> None:
        self.width = 1
        """Steps in a bucket."""
        self.last: float | None = None
        """The newest value."""
        self._faults: dict[tuple[int, str], int] = {}  # bucket and kind -> first step
        self._clear()

    def _clear(self) -> None:
        self._places = array("q")  # the buckets, in order
        self._counts, self._sums, self._lows, self._highs, self._steps = (array("d") for _ in range(5))

    def __len__(self) -> int:
        return len(self._places)

    def add(self, step: int, value: float) -> None:
        """Add one value."""
        if not -FARTHEST < step < FARTHEST:
            step = FARTHEST if step > 0 else -FARTHEST
        self.last, place, places = value, step // self.width, self._places
        if not math.isfinite(value):
            kind = str(value)
            self._faults[place, kind] = min(self._faults.get((place, kind), step), step)
            while len(self._faults) > LIMIT:
                self._widen()
            return
        at = len(places) - 1 if places and places[-1] == place else bisect_left(places, place)
        if at == len(places) or places[at] != place:
            self._insert(at, place, (1, value, value, value, step))
            return
        self._counts[at] += 1
        self._sums[at] += value
        if value < self._lows[at]:
            self._lows[at] = value
        elif value > self._highs[at]:
            self._highs[at] = value
        self._steps[at] += step

    def _insert(self, at: int, place: int, part: Iterable[float]) -> None:
        self._places.insert(at, place)
        for column, value in zip(self._columns, part, strict=True):
            column.insert(at, value)
        while len(self._places) > LIMIT:
            self._widen()

    @property
    def _columns(self) -> tuple[array[float], ...]:
        return self._counts, self._sums, self._lows, self._highs, self._steps

    def _widen(self) -> None:
        self.width *= 2
        before = zip(self._places, *self._columns, strict=True)
        self._clear()
        for place, group in groupby(before, key=lambda part: part[0] // 2):
            _, counts, sums, lows, highs, steps = zip(*group, strict=True)
            self._places.append(place)
            for column, whole in zip(self._columns, (sum(counts), sum(sums), min(lows), max(highs), sum(steps)), strict=True):
                column.append(whole)
        faults, self._faults = self._faults, {}
        for (place, kind), step in faults.items():
            self._faults[place // 2, kind] = min(self._faults.get((place // 2, kind), step), step)

    @property
    def points(self) -> list[Point]:
        """The numbers, by step."""
        parts = zip(*self._columns, strict=True)
        return [Point(far / count, total / count, low, high) for count, total, low, high, far in parts]

    @property
    def faults(self) -> list[Fault]:
        """The values that are not numbers, by step."""
        return sorted(Fault(step, kind) for (_, kind), step in self._faults.items())


def smoothed(values: Iterable[float], weight: float) -> list[float]:
    """Return an exponential moving average like TensorBoard's, without the bias towards zero at the beginning. 0 does not smooth."""
    mean, rest, smooth = 0.0, 1.0, []
    for value in values:
        mean, rest = weight * mean + (1 - weight) * value, rest * weight
        smooth.append(mean / (1 - rest))
    return smooth


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most `most` points, each of some neighbours, with their minimum and maximum."""
    size = math.ceil(len(points) / most) if points else 1
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [
        Point(
            sum(p.step for p in part) / len(part),
            sum(p.mean for p in part) / len(part),
            min(p.low for p in part),
            max(p.high for p in part),
        )
        for part in parts
    ]
