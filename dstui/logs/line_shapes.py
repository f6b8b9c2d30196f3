"""Lines of several ranks that differ only in numbers, within a step: what they have in common, and all of them as one text with ranges.

A line that speaks of a warning or an error has a shape of its own: which number it tells may be all that matters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from dstui.logs.decode import decode
from dstui.logs.levels import ALL, BAD, BEGINS, level_of

NUMBER = rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
STEP = rb"(?:[Ss]tep|STEP|[Ii]ter(?:ation)?|[Ee]poch)s?[^\w\n]{0,4}" + NUMBER
"""The step that a line is of: lines of different steps never are one row."""
VARIABLE = re.compile(rb"(%b)|%b" % (STEP, NUMBER))
IN_TEXT = re.compile(f"({NUMBER.decode()})")
MOST = 64
"""Lines of which the ranges are looked at; those of further ranks only count."""


def shapes_of(text: bytes) -> bytes:
    """Return lines with their numbers left out, but for the step and for lines that speak of something wrong."""
    shapes = VARIABLE.sub(lambda found: found[1] or b"#", text)
    if BEGINS not in text and not any(pattern.search(text) for _, pattern in BAD):
        return shapes
    pairs = zip(text.split(b"\n"), shapes.split(b"\n"), strict=True)
    return b"\n".join([line if level_of(line) != ALL else shape for line, shape in pairs])


@lru_cache(maxsize=1024)
def ranged(lines: tuple[bytes, ...]) -> str:
    """Return lines of one shape as one text: `step 374/600 loss 1.51–1.64`."""
    parts = [IN_TEXT.split(decode(line)) for line in lines[:MOST]]
    if len({len(part) for part in parts}) > 1:
        return decode(lines[0])
    return "".join(_spanned([part[n] for part in parts]) if n % 2 else parts[0][n] for n in range(len(parts[0])))


def _spanned(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if low == high or float(low) == float(high) else f"{low}–{high}"
