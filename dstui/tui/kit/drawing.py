"""The last filter of every line: remove control characters, and replace glyphs on an ASCII terminal.

Names, keys, messages, titles, hints, notifications and typed text may all come from outside.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import TextIOWrapper
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

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
LIKE: Final[dict[str, str]] = dict(
    zip(
        "✔✖▲·●○◐■▪▸›▾▼█▒░▎▌▊–…×→←↑↓⇧•²°µ≈★✗◆◉◌─━│┃╭╮╰╯┌┐└┘├┤┬┴┼▔▁▂▃▄▅▆▇‘’“”",
        "vX!.*o%#+>>vv#:.|||-~x><^v^*2'u~*x+@o--||+++++++++++++-_.:-=+*''\"\"",
        strict=True,
    )
)
"""Replacements of one cell for one cell, so that frames stay intact."""
ROWS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille pattern's dots, row by row."""


def _like_braille(dots: int) -> str:
    """Return the ASCII character closest to a braille cell: by where its dots are, high or low; a bar if they are both."""
    rows = [row for row, bits in enumerate(ROWS) if dots & sum(bits)]
    if not rows:
        return " "
    return "|" if rows[-1] - rows[0] > 1 else "'" if rows[-1] < 2 else "." if rows[0] > 1 else "-"


LIKE.update({chr(0x2800 + dots): _like_braille(dots) for dots in range(256)})


def wants_ascii(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal is drawn in ASCII: by its locale, its type (the Linux console has few glyphs), or the user's setting."""
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or "UTF-8"
    return "UTF" not in locale.upper() or environment.get("TERM") == "linux" or bool(environment.get("DSTUI_ASCII"))


def draw_plainly() -> None:
    """Write ASCII only to the terminal from now on."""
    codecs.register_error("dstui.likeness", _likeness)
    if isinstance(sys.__stderr__, TextIOWrapper):
        sys.__stderr__.reconfigure(encoding="ascii", errors="dstui.likeness")
    GLYPHS.update(STATES)


def _likeness(error: UnicodeError) -> tuple[str, int]:
    from rich.cells import cell_len

    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(LIKE.get(char) or "?" * cell_len(char) for char in text), error.end
