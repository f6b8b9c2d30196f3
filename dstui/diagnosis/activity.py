"""Whether lines show a program at work, and whether a text breaks off. Pure.

A loop's lines differ in their numbers alone, and come again and again; a progress bar counts. A text breaks off where it is an excerpt, a
copy that was cut, or a log that somebody looked at while the run went on.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

BAR = re.compile(r"(\d{1,3})%\|")
"""tqdm's progress bar."""
STEPS = re.compile(r"(?<!\d)(\d+)/(\d+) \[")
"""Its count: 15/100 [."""
DONE = 100
MOVED = 3
"""States of a bar: one that only says where it was when it ended is printed once or twice."""
LEFT_OUT = re.compile(r"(?i)^\W*(?:[\w ]{0,30}\b(?:truncated|snip(?:ped)?|omitted|cut off))\W*$|^\W*(?:\.{3,}|…)\W*$")
"""What people and sites put where they left lines out: `...`, `[output truncated]`, `<snip>`."""
ALIKE, FEW = 4, 2
"""Lines that differ in their numbers alone: a loop is at work; and so few that something else has to speak for it too."""
LEAST_NUMBERS = 2
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
MOMENT = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?")
STAMP = re.compile(r"^.{0,40}?(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
"""The moment in the head of a logger's line."""
LONG, STAMPS = 60, 3
"""Seconds for which no program goes on that has failed, and moments that show it."""
FLUSHED = re.compile(r"\d\d:\d\d:\d\d|\d%\||(?:it/s|s/it)\b")
"""What a logger or a progress bar writes, at once."""


def breaks_off(last: str, *, within_traceback: bool) -> str:
    """Return how the last line of a file shows that it breaks off, as a sentence without the file's name; empty where it does not."""
    if within_traceback:
        return "breaks off within a traceback, before the line that names the exception"
    if LEFT_OUT.match(last):
        return "was cut: its last line says so"
    bars = BAR.findall(last)
    if bars and int(bars[-1]) < DONE:
        return f"breaks off at a progress bar of {bars[-1]} %"
    return ""


def moves(last: list[str]) -> bool:
    """Return whether the last lines of a file show a progress bar that begins, or goes on, and is not at its end."""
    bars = [int(bar) for line in last for bar in BAR.findall(line)]
    return len(set(bars)) >= MOVED and bars[-1] < DONE


def advances(last: list[str]) -> bool:
    """Return whether a progress bar goes on in the last lines of a file: whatever stands above them has not ended it."""
    return len({steps for line in last for steps in STEPS.findall(line)}) >= MOVED


def finished(last: str) -> str:
    """Of how many steps a progress bar counts that is at its end in the last line of a file; empty where it is not."""
    bars = BAR.findall(last)
    steps = STEPS.findall(last)
    return steps[-1][1] if bars and bars[-1] == "100" and steps and steps[-1][0] == steps[-1][1] else ""


def shape(line: str) -> str:
    """Return a line without what its numbers say."""
    return NUMBER.sub("0", line.strip())


def at_work(lines: Iterable[str]) -> bool:
    """Return whether lines are those of a loop: they differ in their numbers alone, or count."""
    numbers = {line: [float(number) for number in NUMBER.findall(line)] for line in lines}
    shapes = Counter(shape(line) for line in numbers if len(numbers[line]) >= LEAST_NUMBERS)
    counted = defaultdict[str, list[float]](list)
    for line, (number, *others) in ((line, found) for line, found in numbers.items() if found):
        counted[shape(line)] += [] if others else [number]
    counts = [len(found) for found in counted.values() if found == sorted(found)]
    return max([*shapes.values(), *counts], default=0) >= ALIKE


def goes_on(before: Iterable[str], after: Iterable[str], least: int = ALIKE) -> bool:
    """Return whether the loop whose lines, as `shape`s, stand before an exception goes on after it.

    A program that has ended may still have printed: what it had in its buffer reaches a file after the exception. But a buffer ends within
    a line, so that whole lines of one kind on both sides were written one by one.
    """
    after = list(after)
    return comes_again(before, after, least) or comes_again(map(shape, filter(FLUSHED.search, after)), after, least)


def comes_again(before: Iterable[str], after: Iterable[str], least: int = ALIKE) -> bool:
    """Return whether so many of these lines are of one of these shapes that a loop wrote them."""
    differing = {MOMENT.sub("", line): line for line in after}  # what is said twice in a row is no loop
    shapes = Counter(shape(line) for bare, line in differing.items() if NUMBER.search(bare))
    return any(shapes[one] >= least for one in before)


def lasts(lines: Iterable[str]) -> bool:
    """Return whether the moments of lines show that a program was at work for long."""
    moments = [int(at[1]) * 3600 + int(at[2]) * 60 + int(at[3]) for line in lines if (at := STAMP.match(line))]
    return len(moments) >= STAMPS and moments == sorted(moments) and moments[-1] - moments[0] >= LONG
