"""Recognise lines of a program at work, and a text that breaks off. Pure.

The lines of a loop differ only in numbers and repeat; a progress bar counts. A text breaks off if it is an excerpt, a truncated copy, or a
log that was copied during the run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

BAR = re.compile(r"(\d{1,3})%\|")
"""tqdm's progress bar."""
STEPS = re.compile(r"(?<!\d)(\d+)/(\d+) \[")
"""The count of a progress bar: 15/100 [."""
DONE = 100
MOVED = 3
"""Distinct states of a bar: one that only shows its final position is printed once or twice."""
LEFT_OUT = re.compile(r"(?i)^\W*(?:[\w ]{0,30}\b(?:truncated|snip(?:ped)?|omitted|cut off))\W*$|^\W*(?:\.{3,}|…)\W*$")
"""Marks that people and web pages put in place of omitted lines: `...`, `[output truncated]`, `<snip>`."""
ALIKE, FEW = 4, 2
"""This many lines that differ only in numbers show a loop at work; FEW of them do so only with further evidence."""
LEAST_NUMBERS = 2
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
MOMENT = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?")
STAMP = re.compile(r"^.{0,40}?(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
"""The time at the beginning of a logger's line."""
LONG, STAMPS = 60, 3
"""Seconds for which no failed program continues, and the number of time stamps that show it."""
FLUSHED = re.compile(r"\d\d:\d\d:\d\d|\d%\||(?:it/s|s/it)\b")
"""Output of a logger or a progress bar, which is written immediately."""

COMMAND = re.compile(
    r"^(?:\([\w.-]+\) ?)*(?:[\w.-]+@[\w.-]+[: ][^$#\n]{0,80})?\$ +(?:\w+=\S* +)*([A-Za-z.~/][\w./~-]+)(?! *[=+*^<>])( .*[^$])?$"
)
"""A command at a shell's prompt, as in a pasted session: `(env) me@host:~$ NAME=value torchrun …`."""
SCRIPT = re.compile(r"\S+\.(?:py|sh)\b")


def command_in(text: str) -> str:
    """Return the program, and the script that it is given, in a command at a shell's prompt; "" if this is none."""
    if (given := COMMAND.match(text)) is None:
        return ""
    script = SCRIPT.search(given[2] or "")
    return f"{given[1]} {script[0]}" if script else given[1]


def breaks_off(last: str, *, within_traceback: bool) -> str:
    """Return how the last line of a file shows that it breaks off, as a sentence without the file's name; "" if it does not."""
    if within_traceback:
        return "breaks off within a traceback, before the line that names the exception"
    if LEFT_OUT.match(last):
        return "was cut: its last line says so"
    bars = BAR.findall(last)
    if bars and int(bars[-1]) < DONE:
        return f"breaks off at a progress bar of {bars[-1]} %"
    return ""


def has_moving_bar(last: Sequence[str]) -> bool:
    """Return whether the last lines of a file show a progress bar that has begun or advances, and is not at its end."""
    bars = [int(bar) for line in last for bar in BAR.findall(line)]
    return len(set(bars)) >= MOVED and bars[-1] < DONE


def bar_advances(last: Sequence[str]) -> bool:
    """Return whether a progress bar advances in the last lines of a file: nothing above them has ended it."""
    return len({steps for line in last for steps in STEPS.findall(line)}) >= MOVED


def finished_bar(last: str) -> str:
    """Return the total of a progress bar that is at its end in the last line of a file; "" if there is none."""
    bars = BAR.findall(last)
    steps = STEPS.findall(last)
    return steps[-1][1] if bars and bars[-1] == "100" and steps and steps[-1][0] == steps[-1][1] else ""


def shape(line: str) -> str:
    """Return a line with its numbers replaced."""
    return NUMBER.sub("0", line.strip())


def is_loop(lines: Iterable[str]) -> bool:
    """Return whether lines come from a loop: they differ only in numbers, or count."""
    numbers = {line: [float(number) for number in NUMBER.findall(line)] for line in lines}
    shapes = Counter(shape(line) for line in numbers if len(numbers[line]) >= LEAST_NUMBERS)
    counted = defaultdict[str, list[float]](list)
    for line, (number, *others) in ((line, found) for line, found in numbers.items() if found):
        counted[shape(line)] += [] if others else [number]
    counts = [len(found) for found in counted.values() if found == sorted(found)]
    return max([*shapes.values(), *counts], default=0) >= ALIKE


def loop_continues(before: Iterable[str], after: Iterable[str], least: int = ALIKE) -> bool:
    """Return whether the loop whose lines (as `shape`s) precede an exception continues after it.

    A program that has ended may still print: its buffered output reaches a file after the exception. But a buffer ends in the middle of a
    line, so whole lines of one kind on both sides were written one by one.
    """
    after = list(after)
    return shape_recurs(before, after, least) or shape_recurs(map(shape, filter(FLUSHED.search, after)), after, least)


def shape_recurs(before: Iterable[str], after: Iterable[str], least: int = ALIKE) -> bool:
    """Return whether so many of these lines are of one of these shapes that a loop wrote them."""
    differing = {MOMENT.sub("", line): line for line in after}  # a line that is repeated once is not a loop
    shapes = Counter(shape(line) for bare, line in differing.items() if NUMBER.search(bare))
    return any(shapes[one] >= least for one in before)


def runs_long(lines: Iterable[str]) -> bool:
    """Return whether the time stamps of lines show that a program worked for long."""
    moments = [int(at[1]) * 3600 + int(at[2]) * 60 + int(at[3]) for line in lines if (at := STAMP.match(line))]
    return len(moments) >= STAMPS and moments == sorted(moments) and moments[-1] - moments[0] >= LONG
