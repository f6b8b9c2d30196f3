"""The screen on a terminal that shows no more than ASCII: the four states as words and signs, everything else as what looks most like it.

What is drawn is encoded at the very end, so that neither dstui's own widgets nor Textual's have to know.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Final

from dstui.tui.kit.text_row import GLYPHS

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
    """What looks most like a piece of a curve: where its dots are, high or low; a bar where they are both."""
    rows = [row for row, bits in enumerate(ROWS) if dots & sum(bits)]
    if not rows:
        return " "
    return "|" if rows[-1] - rows[0] > 1 else "'" if rows[-1] < 2 else "." if rows[0] > 1 else "-"


LIKE.update({chr(0x2800 + dots): _like_braille(dots) for dots in range(256)})


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the terminal is said to have no UTF-8: by its locale, by its kind (the Linux console has few glyphs), or by the user."""
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
