"""A line of the screen as data: pieces of text with style names, and a key.

Pure: the content of a form, the preview or the checks is built and tested as a list of rows, without a screen.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from textwrap import wrap
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

from dstui.base.dataclass import dataclass


class Span(NamedTuple):
    """Text in one style, named as in `STYLES` of kit/styles.py; "" is plain."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line: spans from the left, spans from the right edge, and a key for what it represents."""

    left: tuple[Span, ...] = ()
    right: tuple[Span, ...] = ()
    key: Hashable | None = None
    """None means that the cursor skips this row."""
    mark: str = ""
    """A glyph of one cell for the margin, in the style `mark`."""

    @property
    def text(self) -> str:
        """Return the row without styles, for tests and for the clipboard."""
        return " ".join(filter(None, ("".join(s.text for s in self.left), "".join(s.text for s in self.right))))


BLANK = Row()

GLYPHS = {"ok": "✔", "warning": "▲", "error": "✖", "unknown": "·"}
"""State is never shown by colour alone: each has a glyph here (on ASCII terminals another one: drawing.py) and a word beside it."""

STYLE_OF = {"ok": "ok", "warning": "warning", "error": "error", "unknown": "dim", "info": "dim"}


Fragment: TypeAlias = str | Span | tuple[str, str]
"""A plain string, or text and the name of its style."""


def row(*fragments: Fragment, right: Iterable[Fragment] = (), key: Hashable | None = None) -> Row:
    """Return a row from plain strings and (text, style) pairs."""
    return Row(spans(fragments), spans(right), key)


def spans(fragments: Iterable[Fragment]) -> tuple[Span, ...]:
    """Return strings and pairs as spans, without empty ones."""
    made = (Span(p) if isinstance(p, str) else Span(*p) for p in fragments)
    return tuple(s for s in made if s.text)


def paragraph(text: str, width: int, style: str = "", *, indent: str = "", first: Sequence[Span] = ()) -> list[Row]:
    """Return `text` wrapped at `width` cells as rows. `first` precedes the first line; the others are indented to match."""
    head = tuple(first) or (Span(indent),)
    hanging = Span(" " * sum(cell_len(s.text) for s in head))
    room = max(width - len(hanging.text), 8)
    lines = [line for part in text.split("\n") for line in (wrap(_breakable(part, room), room) or [""])]
    return [Row((*(head if number == 0 else (hanging,)), Span(line, style))) for number, line in enumerate(lines)]


def _breakable(text: str, room: int) -> str:
    """Return a text in which words longer than a line have spaces where they break: after a slash, as far as they have any."""
    words = []
    for word in text.split(" "):
        rest = word
        while len(rest) > room:
            end = rest.rfind("/", 1, room) + 1 or room
            words.append(rest[:end])
            rest = rest[end:]
        words.append(rest)
    return " ".join(words)


def fit(text: str, width: int, *, end: bool = False) -> str:
    """Return `text` in exactly `width` cells, with an ellipsis if it was cut. `end`: keep its end instead of its beginning."""
    if cell_len(text) <= width:
        return set_cell_size(text, max(width, 0))
    if end and width > 0:
        return "…" + set_cell_size(text[::-1], width - 1)[::-1]
    return set_cell_size(text, max(width - 1, 0)) + "…" if width > 0 else ""
