"""ASCII characters in place of the glyphs that dstui draws with, for terminals and files that take no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

LIKE: Final[dict[str, str]] = dict(
    zip(
        "✔✖▲·●○◐■▪▸›▾▼█▒░▎▌▊–…×→←↑↓⇧•²°µ≈★◆◉◌─━│┃╭╮╰╯┌┐└┘├┤┬┴┼▔▁▂▃▄▅▆▇‘’“”⋮",
        "vX!.*o%#+>>vv#:.|||-~x><^v^*2'u~*+@o--||+++++++++++++-_.:-=+*''\"\":",
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


def replace_glyphs(error: UnicodeError, other: Callable[[str], str]) -> tuple[str, int]:
    """Handle characters that an encoding lacks, as `codecs.register_error` requires; `other` replaces those that are not glyphs."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(LIKE.get(char) or other(char) for char in error.object[error.start : error.end]), error.end
