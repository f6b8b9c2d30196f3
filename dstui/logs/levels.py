"""Detect the level of a line by usual spellings, and group lines of several ranks that differ only in numbers within a step.

A traceback is one unit, from its first line to the exception. Levels are read from lines as displayed: `[31mERROR[0m`, as loguru and
colorlog write it, is an error. A group is formatted as one text with ranges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dstui.logs.decode import decode, is_unadorned, strip_overwritten

ALL, WARNING, ERROR = range(3)
NAMES: Final = ("all", "warning", "error")
ALIASES: Final = {"info": "all", "debug": "all", "warn": "warning", "warnings": "warning", "err": "error", "errors": "error"}
"""Other words for levels; there is no level below warning to select."""

RANK = re.compile(rb"(?:\[(?:default|rank)?\d+\][:>]? ?)?")
"""A label of torchrun, DeepSpeed or mpirun at the start of a line."""
BAR = re.compile(rb"\d+%\|")
BEGINS: Final = b"Traceback (most recent call last)"
INSIDE = re.compile(rb"[ \t|+]|\xe2[\x94\x95]")
"""Beginnings of lines within a traceback; the last alternative is the frame that Rich draws."""
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
"""Every line with a level contains one of these, or CODE. Searching many lines at once for them costs almost nothing."""
CODE: Final = re.compile(rb"[EFW]\d{4} ")


def may_have_level(lines: bytes) -> bool:
    """Return False if none of these lines has a level. They must be without colours and overwritten text."""
    return any(part in lines for part in PARTS) or CODE.search(lines) is not None


def level_named(word: str) -> int | None:
    """Return the level that a word means, ignoring case; None if it is not a level."""
    name = ALIASES.get(word.lower(), word.lower())
    return NAMES.index(name) if name in NAMES else None


def level_of(line: bytes) -> int:
    """Return the level of one displayed line. A progress bar has none."""
    if BEGINS in line or b"terminate called" in line or b"what():" in line:
        return ERROR
    if b"%|" in line and BAR.search(line):  # the plain text is found ten times as fast
        return ALL
    return next((level for level, pattern in BAD if pattern.search(line)), ALL)


PIECE = 256
"""Lines that are passed over at once."""


class Levels:
    """Selects lines by level, for each log in the order of its lines."""

    def __init__(self, least: int) -> None:
        self.least = least
        self._open: set[int] = set()  # logs that are inside a traceback

    def select(self, logs: Sequence[int], lines: Sequence[bytes]) -> list[int]:
        """Return the indices of the lines that are selected. Many lines without any level are passed over at once."""
        selected: list[int] = []
        for start in range(0, len(lines), PIECE):
            piece = lines[start : start + PIECE]
            text = b"\n".join(piece)
            if self._open or not is_unadorned(text) or may_have_level(text):
                selected += [n for n, line in enumerate(piece, start) if self.keep(logs[n], line)]
        return selected

    def keep(self, log: int, line: bytes) -> bool:
        """Return whether a line, as written, is selected."""
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


NUMBER = re.compile(rb"[0-9][0-9]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
STEP = re.compile(rb"(?:step|Step|STEP|iter|Iter|epoch|Epoch)(?:ation)?s?[^\w\n]{0,4}" + NUMBER.pattern)
"""The step of a line: lines of different steps are never grouped. An expression that begins with one of a few letters, as these do, is
searched several times as fast."""
HELD = bytes.maketrans(b"0123456789", bytes(range(0xF5, 0xFF)))
"""Digits as bytes that are in no text, so that a step is not taken for a number."""
RELEASED = bytes.maketrans(bytes(range(0xF5, 0xFF)), b"0123456789")
IN_TEXT = re.compile(NUMBER.pattern.decode(), re.ASCII)
MAX_COMPARED = 64
"""Lines of a group whose numbers are compared; those of further ranks are only counted."""


def shapes_of(text: bytes) -> bytes:
    """Return lines without their numbers, except the step and lines about warnings or errors."""
    held = STEP.sub(lambda found: found[0].translate(HELD), text)
    shapes = NUMBER.sub(b"#", held).translate(RELEASED)
    if not may_have_level(text):
        return shapes
    pairs = zip(text.split(b"\n"), shapes.split(b"\n"), strict=True)
    return b"\n".join([line if level_of(line) != ALL else shape for line, shape in pairs])


@lru_cache(maxsize=1024)
def ranged(lines: tuple[bytes, ...]) -> str:
    """Format lines of one shape as one text: `step 374/600 loss 1.51–1.64`."""
    first, numbers = decode(lines[0]), [NUMBER.findall(strip_overwritten(line)) for line in lines[:MAX_COMPARED]]
    if len(set(map(len, numbers))) > 1:
        return first
    spans = iter([_spanned(column) for column in zip(*numbers, strict=True)])
    return IN_TEXT.sub(lambda found: next(spans, found[0]), first)


def _spanned(numbers: Sequence[bytes]) -> str:
    distinct = dict.fromkeys(numbers)
    low, high = min(distinct, key=float), max(distinct, key=float)
    return low.decode() if low == high or float(low) == float(high) else f"{low.decode()}–{high.decode()}"
