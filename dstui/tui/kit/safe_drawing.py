"""What widgets draw, made safe for the terminal: the last thing that happens to every line of the screen, whoever made it.

Names, keys, messages, titles, hints, notifications and what is typed may all hold what somebody else wrote.
"""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from dstui.text import UNSAFE

UNDRAWN: Final = re.compile(f"{UNSAFE.pattern}|\t")


class Safely(LineFilter):
    """A line whose text has no control characters; those that take cells leave as many dots. A plain segment costs 0.1 µs."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's own signature
        """The line as it goes to the terminal."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(UNDRAWN.sub(_dots, segment.text), segment.style, segment.control) for segment in segments]


def _dots(match: re.Match[str]) -> str:
    return "·" * cell_len(match[0])


SAFELY: Final = Safely()
