"""Group lines of several ranks that differ only in numbers within a step, and format a group as one text with ranges.

A line about a warning or an error has a shape of its own, since each of its numbers may matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from dstui.logs.decode import decode
from dstui.logs.levels import ALL, level_of, may_have_level

NUMBER = rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
STEP = rb"(?:[Ss]tep|STEP|[Ii]ter(?:ation)?|[Ee]poch)s?[^\w\n]{0,4}" + NUMBER
"""The step of a line: lines of different steps are never grouped."""
VARIABLE = re.compile(rb"(%b)|%b" % (STEP, NUMBER))
IN_TEXT = re.compile(f"({NUMBER.decode()})")
MOST = 64
"""Lines of a group whose numbers are compared; those of further ranks are only counted."""


def shapes_of(text: bytes) -> bytes:
    """Return lines without their numbers, except the step and lines about warnings or errors."""
    shapes = VARIABLE.sub(lambda found: found[1] or b"#", text)
    if not may_have_level(text):
        return shapes
    pairs = zip(text.split(b"\n"), shapes.split(b"\n"), strict=True)
    return b"\n".join([line if level_of(line) != ALL else shape for line, shape in pairs])


@lru_cache(maxsize=1024)
def ranged(lines: tuple[bytes, ...]) -> str:
    """Format lines of one shape as one text: `step 374/600 loss 1.51–1.64`."""
    parts = [IN_TEXT.split(decode(line)) for line in lines[:MOST]]
    if len({len(part) for part in parts}) > 1:
        return decode(lines[0])
    return "".join(_spanned([part[n] for part in parts]) if n % 2 else parts[0][n] for n in range(len(parts[0])))


def _spanned(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if low == high or float(low) == float(high) else f"{low}–{high}"
