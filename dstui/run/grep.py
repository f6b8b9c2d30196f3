"""Which lines hold a text or match a regular expression, looked for in the bytes of a log about as fast as grep does it.

Python's own search compares byte by byte: it needs 1 s for a gigabyte, and 16 s for an expression with alternatives. The C library's
strstr compares 16 bytes at once: 0.2 s, where `grep -F` needs 0.2 to 1.3 s. So texts are found by strstr, and an expression is tried only
on lines that hold a text without which it cannot match.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from dstui.run import newlines

DENSE_HITS, DENSE_BYTES = 64, 512
"""Where so many matches follow each other within so many bytes each, it is faster to split all lines and look at each."""

Seek = Callable[[bytes, int], int]
_strstr = ctypes.PyDLL(None).strstr
_strstr.argtypes, _strstr.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_void_p


class Wanted(NamedTuple):
    """What a line must have: one of `texts` (where there are any), and a match of `expression` (where there is one)."""

    texts: tuple[bytes, ...]
    expression: re.Pattern[bytes] | None = None
    ignore_case: bool = False
    """Of the letters of ASCII; the texts are lower case then."""


def finder(text: str, *, regex: bool, ignore_case: bool) -> Wanted | None:
    """What to look for in the bytes of lines; None where that needs the letters themselves (É is é)."""
    if ignore_case and not text.isascii():
        return None
    texts = _needed(text) if regex else [text] if text else []
    expression = re.compile(text.encode(), re.IGNORECASE if ignore_case else 0) if regex else None
    return Wanted(tuple((each.lower() if ignore_case else each).encode() for each in texts), expression, ignore_case)


def matching_lines(data: bytes, wanted: Wanted) -> list[int]:
    """The numbers of the lines of `data` in which it is found, counted from 0."""
    text = data.lower() if wanted.ignore_case and wanted.texts else data
    seek = _seeker(text, wanted.texts)
    found: list[Collection[int]] = [_lines_with(text, each, seek) for each in wanted.texts]
    if not found:
        found = [range(newlines.count(data) + (data[-1:] != b"\n"))]
    numbers = found[0] if len(found) == 1 else sorted(set().union(*found))
    if wanted.expression is None or not numbers:
        return list(numbers)
    lines, search = data.split(b"\n"), wanted.expression.search
    return [number for number in numbers if search(lines[number])]


def only(data: bytes, wanted: Wanted) -> bytes:
    """The lines of `data` in which it is found."""
    numbers = matching_lines(data, wanted)
    lines = data.split(b"\n") if numbers else []
    return b"\n".join([lines[number] for number in numbers])


def holds(data: bytes, wanted: Wanted) -> bool:
    """Whether some line of `data` may be one of those; the expression is not tried."""
    text = data.lower() if wanted.ignore_case and wanted.texts else data
    seek = _seeker(text, wanted.texts)
    return not wanted.texts or any(seek(each, 0) >= 0 for each in wanted.texts)


def _needed(expression: str) -> list[str]:
    """Texts of which at least one is in everything that the expression matches, where that is easily seen; else none."""
    words = re.fullmatch(r"\\b(?:\\w\*)?\(([\w |]+)\)\\b", expression)
    if words:
        every = words[1].split("|")
        return [word for word in every if not any(other in word and other != word for other in every)]
    if re.search(r"[|()\[\]{}\\]", expression):
        return []
    longest = max(re.split(r".[*?]|[.^$+?]", expression), key=len)
    return [longest] if longest else []


def _lines_with(data: bytes, text: bytes, seek: Seek) -> list[int]:
    """The numbers of the lines that hold a text."""
    if not text:
        return list(range(newlines.count(data) + 1))
    offsets: list[int] = []
    at = -len(text)
    while (at := seek(text, at + len(text))) >= 0:
        offsets.append(at)
        if len(offsets) % DENSE_HITS == 0 and at - offsets[-DENSE_HITS] < DENSE_HITS * DENSE_BYTES:
            return [number for number, line in enumerate(data.split(b"\n")) if text in line]
    return newlines.lines_of(data, offsets)


def _seeker(data: bytes, texts: tuple[bytes, ...]) -> Seek:
    """Where a text is next, from an offset on; -1 where nowhere. Good for as long as the caller holds `data`."""
    if b"\0" in data or b"\0" in b"".join(texts):  # where strstr would end
        return data.find
    start = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0

    def seek(text: bytes, at: int) -> int:
        found = _strstr(start + at, text)
        return found - start if found else -1

    return seek
