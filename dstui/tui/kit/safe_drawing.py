"""What widgets draw, made safe for the terminal: the last thing that happens to every line of the screen, whoever made it.

Names, keys, messages, titles, hints, notifications and what is typed may all hold what somebody else wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from dstui.base.text import UNSAFE

UNDRAWN: Final = re.compile(f"{UNSAFE.pattern}|\t")


class Safely(LineFilter):
    """A line whose text has no control characters; those that take cells leave as many dots. A plain segment costs 0.1 µs."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's own signature
        """The line as it goes to the terminal."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(UNDRAWN.sub(_dots, segment.text), segment.style, segment.control) for segment in segments]


class Together(LineFilter):
    """Filters as one, in their order: Textual makes a new line, with seven caches of its own, for each filter that it knows of."""

    def __init__(self, filters: Sequence[LineFilter]) -> None:
        super().__init__()
        self._filters = filters

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line after the last of them."""
        for each in self._filters:
            segments = each.apply(segments, background)
        return segments


@lru_cache(maxsize=8)
def together(*filters: LineFilter) -> LineFilter:
    """One filter that does what these do, the same each time: lines remember what it made of them."""
    return Together(filters)


def _dots(match: re.Match[str]) -> str:
    return "·" * cell_len(match[0])


SAFELY: Final = Safely()
