"""How bad a line is, by the usual spellings; a traceback is one thing, from its first line to the exception's.

Levels are read from lines as they are shown: `\x1b[31mERROR\x1b[0m`, as loguru and colorlog write it, is an error.
"""

from __future__ import annotations

import re
from typing import Final

from dstui.logs.decode import strip_overwritten

ALL, WARNING, ERROR = range(3)
NAMES: Final = ("all", "warning", "error")
ALIASES: Final = {"info": "all", "debug": "all", "warn": "warning", "warnings": "warning", "err": "error", "errors": "error"}
"""Other words that people write for them; there is no level below a warning to choose."""

RANK = re.compile(rb"(?:\[(?:default|rank)?\d+\][:>]? ?)?")
"""What torchrun, DeepSpeed and mpirun put before a line."""
BAR = re.compile(rb"\d+%\|")
BEGINS: Final = b"Traceback (most recent call last)"
INSIDE = re.compile(rb"[ \t|+]|\xe2[\x94\x95]")
"""How lines within a traceback begin; the last is the frame that Rich draws around it."""
BAD: Final = (
    (
        ERROR,
        re.compile(
            rb"\b(?:ERROR|CRITICAL|FATAL|FAILED|Fatal|Segmentation fault|Aborted)\b|\b[\w.]*(?:Error|Exception|Interrupt)\b(?=:|$)"
            rb"|\b(?:error|fatal|Error): |\[E(?:\d{4})?[\] ]|(?:^|[\]:>] ?)\[?[EF]\d{4} "
        ),
    ),
    (
        WARNING,
        re.compile(rb"\bWARN(?:ING)?\b|\b\w*Warning\b(?=:)|\b(?:warning|Warning): |\[W(?:\d{4})?[\] ]|(?:^|[\]:>] ?)\[?W\d{4} "),
    ),
)


PARTS: Final = (
    *(BEGINS, b"terminate called", b"what():", b"rror", b"ERROR", b"Exception", b"Interrupt", b"CRITICAL", b"FATAL", b"atal", b"FAILED"),
    *(b"Segmentation", b"Aborted", b"[E", b"WARN", b"arning", b"[W"),
)
"""Of these, or of CODE, every line that has a level holds one: looked for in many lines at once, they cost next to nothing."""
CODE: Final = re.compile(rb"[EFW]\d{4} ")


def may_have_level(lines: bytes) -> bool:
    """Return False where none of these lines speaks of a warning or an error. They hold no colours and nothing overwritten."""
    return any(part in lines for part in PARTS) or CODE.search(lines) is not None


def level_named(word: str) -> int | None:
    """Return the level that a word means, in any case; None for no level."""
    name = ALIASES.get(word.lower(), word.lower())
    return NAMES.index(name) if name in NAMES else None


def level_of(line: bytes) -> int:
    """Return the level of one line as shown; a progress bar has none, whatever it says."""
    if BEGINS in line or b"terminate called" in line or b"what():" in line:
        return ERROR
    if b"%|" in line and BAR.search(line):  # the text alone is found ten times as fast
        return ALL
    return next((level for level, pattern in BAD if pattern.search(line)), ALL)


class Levels:
    """Which lines have a level or a higher one, each log's in their order."""

    def __init__(self, least: int) -> None:
        self.least = least
        self._open: set[int] = set()  # the logs that are in a traceback

    def keep(self, log: int, line: bytes) -> bool:
        """Return whether a line, as written, is shown."""
        if self.least == ALL:
            return True
        line = strip_overwritten(line)
        if BEGINS in line:
            self._open.add(log)
            return True
        if log in self._open:
            rest = RANK.sub(b"", line, count=1)
            if rest and not INSIDE.match(rest):
                self._open.discard(log)  # the exception
            return True
        return level_of(line) >= self.least
