"""Whether lines show a program at work: a loop's lines differ in their numbers alone, and come again and again. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

ALIKE = 4
"""Lines that differ in their numbers alone: a loop is at work."""
LEAST_NUMBERS = 2
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
MOMENT = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?")
STAMP = re.compile(r"^.{0,40}?(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
"""The moment in the head of a logger's line."""
LONG, STAMPS = 60, 3
"""Seconds for which no program goes on that has failed, and moments that show it."""
FLUSHED = re.compile(r"\d\d:\d\d:\d\d|\d%\||(?:it/s|s/it)\b")
"""What a logger or a progress bar writes, at once."""


def shape(line: str) -> str:
    """A line without what its numbers say."""
    return NUMBER.sub("0", line.strip())


def at_work(lines: Iterable[str]) -> bool:
    """Whether lines are those of a loop: they differ in their numbers alone, or count."""
    numbers = {line: [float(number) for number in NUMBER.findall(line)] for line in lines}
    shapes = Counter(shape(line) for line in numbers if len(numbers[line]) >= LEAST_NUMBERS)
    counted = defaultdict[str, list[float]](list)
    for line, (number, *others) in ((line, found) for line, found in numbers.items() if found):
        counted[shape(line)] += [] if others else [number]
    counts = [len(found) for found in counted.values() if found == sorted(found)]
    return max([*shapes.values(), *counts], default=0) >= ALIKE


def goes_on(before: Iterable[str], after: Iterable[str]) -> bool:
    """Whether the loop whose lines, as `shape`s, stand before an exception goes on after it.

    A program that has ended may still have printed: what it had in its buffer reaches a file after the exception. But a buffer ends within
    a line, so that whole lines of one kind on both sides were written one by one.
    """
    after = list(after)
    return comes_again(before, after) or comes_again(map(shape, filter(FLUSHED.search, after)), after)


def comes_again(before: Iterable[str], after: Iterable[str]) -> bool:
    """Whether so many of these lines are of one of these shapes that a loop wrote them."""
    differing = {MOMENT.sub("", line): line for line in after}  # what is said twice in a row is no loop
    shapes = Counter(shape(line) for bare, line in differing.items() if NUMBER.search(bare))
    return any(shapes[one] >= ALIKE for one in before)


def lasts(lines: Iterable[str]) -> bool:
    """Whether the moments of lines show that a program was at work for long."""
    moments = [int(at[1]) * 3600 + int(at[2]) * 60 + int(at[3]) for line in lines if (at := STAMP.match(line))]
    return len(moments) >= STAMPS and moments == sorted(moments) and moments[-1] - moments[0] >= LONG
