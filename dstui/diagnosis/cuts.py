"""Whether a log breaks off: an excerpt, a copy that was cut, a run that somebody looked at while it ran."""

from __future__ import annotations

import re

BAR = re.compile(r"(\d{1,3})%\|")
"""tqdm's progress bar."""
STEPS = re.compile(r"(?<!\d)(\d+)/(\d+) \[")
"""Its count: 15/100 [."""
DONE = 100
MOVED = 3
"""States of a bar: one that only says where it was when it ended is printed once or twice."""
LEFT_OUT = re.compile(r"(?i)^\W*(?:[\w ]{0,30}\b(?:truncated|snip(?:ped)?|omitted|cut off))\W*$|^\W*(?:\.{3,}|…)\W*$")
"""What people and sites put where they left lines out: `...`, `[output truncated]`, `<snip>`."""


def breaks_off(last: str, *, within_traceback: bool) -> str:
    """How the last line of a file shows that it breaks off, as a sentence without the file's name; empty where it does not."""
    if within_traceback:
        return "breaks off within a traceback, before the line that names the exception"
    if LEFT_OUT.match(last):
        return "was cut: its last line says so"
    bars = BAR.findall(last)
    if bars and int(bars[-1]) < DONE:
        return f"breaks off at a progress bar of {bars[-1]} %"
    return ""


def moves(last: list[str]) -> bool:
    """Whether the last lines of a file show a progress bar that begins, or goes on, and is not at its end."""
    bars = [int(bar) for line in last for bar in BAR.findall(line)]
    return len(set(bars)) >= MOVED and bars[-1] < DONE


def advances(last: list[str]) -> bool:
    """Whether a progress bar goes on in the last lines of a file: whatever stands above them has not ended it."""
    return len({steps for line in last for steps in STEPS.findall(line)}) >= MOVED


def finished(last: str) -> str:
    """Of how many steps a progress bar counts that is at its end in the last line of a file; empty where it is not."""
    bars = BAR.findall(last)
    steps = STEPS.findall(last)
    return steps[-1][1] if bars and bars[-1] == "100" and steps and steps[-1][0] == steps[-1][1] else ""
