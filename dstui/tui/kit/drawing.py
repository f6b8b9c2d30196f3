"""The last filter of every line: remove control characters, and replace glyphs on an ASCII terminal.

Names, keys, messages, titles, hints, notifications and typed text may all come from outside.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from io import TextIOWrapper
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from dstui.base.glyphs import replace_glyphs
from dstui.base.text import UNSAFE
from dstui.tui.kit.text_row import GLYPHS

UNDRAWN: Final = re.compile(f"{UNSAFE.pattern}|\t")


class Safely(LineFilter):
    """Replace control characters; those that occupy cells become dots. A plain segment costs 0.1 µs."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's own signature
        """Return the filtered line."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(UNDRAWN.sub(_dots, segment.text), segment.style, segment.control) for segment in segments]


class Together(LineFilter):
    """Several filters as one: Textual creates a new line with seven caches for each filter."""

    def __init__(self, filters: Sequence[LineFilter]) -> None:
        super().__init__()
        self._filters = filters

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line after all filters, in their order."""
        for each in self._filters:
            segments = each.apply(segments, background)
        return segments


@lru_cache(maxsize=8)
def combine_filters(*filters: LineFilter) -> LineFilter:
    """Return one filter for these, the same object each time: lines cache results by filter."""
    return Together(filters)


def _dots(match: re.Match[str]) -> str:
    return "·" * cell_len(match[0])


SAFELY: Final = Safely()


STATES: Final = {"ok": "ok", "warning": "! ", "error": "X ", "unknown": ". "}


def draw_plainly() -> None:
    """Write ASCII only to the terminal from now on."""
    codecs.register_error("dstui.likeness", _likeness)
    if isinstance(sys.__stderr__, TextIOWrapper):
        sys.__stderr__.reconfigure(encoding="ascii", errors="dstui.likeness")
    GLYPHS.update(STATES)


def _likeness(error: UnicodeError) -> tuple[str, int]:
    return replace_glyphs(error, lambda char: "?" * cell_len(char))
