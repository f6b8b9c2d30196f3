"""The last thing that happens to every line of the screen: control characters are taken out, and on an ASCII terminal glyphs are replaced.

Names, keys, messages, titles, hints, notifications and what is typed may all hold what somebody else wrote.
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
    """A line whose text has no control characters; those that take cells leave as many dots. A plain segment costs 0.1 µs."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's own signature
        """Return the line as it goes to the terminal."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(UNDRAWN.sub(_dots, segment.text), segment.style, segment.control) for segment in segments]


class Together(LineFilter):
    """Filters as one, in their order: Textual makes a new line, with seven caches of its own, for each filter that it knows of."""

    def __init__(self, filters: Sequence[LineFilter]) -> None:
        super().__init__()
        self._filters = filters

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line after the last of them."""
        for each in self._filters:
            segments = each.apply(segments, background)
        return segments


@lru_cache(maxsize=8)
def together(*filters: LineFilter) -> LineFilter:
    """Return one filter that does what these do, the same each time: lines remember what it made of them."""
    return Together(filters)


def _dots(match: re.Match[str]) -> str:
    return "·" * cell_len(match[0])


SAFELY: Final = Safely()


STATES: Final = {"ok": "ok", "warning": "! ", "error": "x ", "unknown": ". "}
LIKE: Final[dict[str, str]] = dict(
    zip(
        "✔✖▲·●○◐■▪▸›▾▼█░▎▌▊–…×→←↑↓⇧•²─━│┃╭╮╰╯┌┐└┘├┤┬┴┼▔▁▂▃▄▅▆▇‘’“”",
        "vx!.*o%#+>>vv#.|||-.x><^v^*2--||+++++++++++++-_.:-=+*''\"\"",
        strict=True,
    )
)
"""One cell for one cell, or frames would break."""
ROWS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille pattern's dots, line by line."""


def _like_braille(dots: int) -> str:
    """Return what looks most like a piece of a curve: where its dots are, high or low; a bar where they are both."""
    rows = [row for row, bits in enumerate(ROWS) if dots & sum(bits)]
    if not rows:
        return " "
    return "|" if rows[-1] - rows[0] > 1 else "'" if rows[-1] < 2 else "." if rows[0] > 1 else "-"


LIKE.update({chr(0x2800 + dots): _like_braille(dots) for dots in range(256)})


def wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal has no UTF-8: by its locale, its kind (the Linux console has few glyphs), or the user's word."""
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or "UTF-8"
    return "UTF" not in locale.upper() or environment.get("TERM") == "linux" or bool(environment.get("DSTUI_ASCII"))


def draw_plainly() -> None:
    """From now on what Textual writes to the terminal is ASCII."""
    codecs.register_error("dstui.likeness", _likeness)
    if isinstance(sys.__stderr__, TextIOWrapper):
        sys.__stderr__.reconfigure(encoding="ascii", errors="dstui.likeness")
    GLYPHS.update(STATES)


def _likeness(error: UnicodeError) -> tuple[str, int]:
    from rich.cells import cell_len

    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(LIKE.get(char) or "?" * cell_len(char) for char in text), error.end
