"""Values over steps in bounded memory for runs of any length: at most LIMIT buckets, which double in width when there are more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LIMIT = 1024
"""Buckets of one series: several for each cell of the widest plot. Up to this many steps every value is kept."""


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
    """One series. Steps may arrive in any order and repeatedly."""

    __slots__ = ("_faults", "_parts", "last", "width")

    def __init__(self) -> None:
        self.width = 1
        """Steps in a bucket."""
        self.last: float | None = None
        """The newest value."""
        self._parts: dict[int, list[float]] = {}  # bucket -> count, sum of values, minimum, maximum, sum of steps
        self._faults: dict[tuple[int, str], int] = {}  # bucket and kind -> first step

    def add(self, step: int, value: float) -> None:
        """Add one value."""
        self.last, place = value, step // self.width
        if not math.isfinite(value):
            kind = str(value)
            self._faults[place, kind] = min(self._faults.get((place, kind), step), step)
        elif part := self._parts.get(place):
            part[0] += 1
            part[1] += value
            part[2], part[3] = min(part[2], value), max(part[3], value)
            part[4] += step
        else:
            self._parts[place] = [1, value, value, value, step]
        while len(self._parts) > LIMIT or len(self._faults) > LIMIT:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        before, self._parts = self._parts, {}
        for place, part in before.items():
            whole = self._parts.setdefault(place // 2, part)
            if whole is not part:
                whole[0], whole[1], whole[4] = whole[0] + part[0], whole[1] + part[1], whole[4] + part[4]
                whole[2], whole[3] = min(whole[2], part[2]), max(whole[3], part[3])
        faults, self._faults = self._faults, {}
        for (place, kind), step in faults.items():
            self._faults[place // 2, kind] = min(self._faults.get((place // 2, kind), step), step)

    @property
    def points(self) -> list[Point]:
        """The numbers, by step."""
        parts = (self._parts[place] for place in sorted(self._parts))
        return [Point(steps / count, total / count, low, high) for count, total, low, high, steps in parts]

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
