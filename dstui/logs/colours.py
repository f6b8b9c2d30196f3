"""The colours of a script's lines as values. Of all escapes only SGR is interpreted, as a bounded style."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias

from dstui.base.dataclass import dataclass
from dstui.base.text import ESCAPES, LINE_CAP, UNSAFE, last_segment
from dstui.logs.decode import LONGEST

Colour: TypeAlias = int | tuple[int, int, int]
"""One of the 256 terminal colours (the theme defines the first 16), or red, green and blue."""
SGR: Final = re.compile(r"(?:\x1b\[|\x9b)([0-9;:]*)m")


@dataclass(frozen=True, slots=True)
class Paint:
    """A text style. Blinking and hidden text are ignored: the whole log must be visible."""

    colour: Colour | None = None
    ground: Colour | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


PLAIN: Final = Paint()
ATTRIBUTES: Final = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
ENDS: Final = {21: ("bold",), 22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",), 29: ("strike",)}

Run: TypeAlias = tuple[str, Paint]
"""Text in one style."""


def colour_runs(raw: bytes) -> tuple[Run, ...]:
    """Return the text that `decode` makes of a line, in its colours; empty for a line without colours or one that is cut."""
    if len(raw) > LONGEST:
        return ()
    text = raw.decode("utf-8", "replace")
    text = last_segment(text) if "\r" in text else text
    found = tuple(_runs(text)) if len(text) <= LINE_CAP else ()
    return found if any(paint != PLAIN for _, paint in found) else ()


def _runs(text: str) -> Iterator[Run]:
    paint, column, end = PLAIN, 0, 0
    for match in (*ESCAPES.finditer(text), None):
        part = text[end : match.start()] if match else text[end:]
        if "\t" in part:
            part = (" " * (column % 8) + part).expandtabs(8)[column % 8 :]
        column += len(part)
        if part and (shown := part if part.isprintable() else UNSAFE.sub("", part)):
            yield shown, paint
        if match:
            end = match.end()
            if sgr := SGR.fullmatch(match[0]):
                paint = apply_sgr(paint, sgr[1])


@lru_cache(maxsize=4096)
def apply_sgr(paint: Paint, words: str) -> Paint:
    """Return the style after an SGR sequence with these parameters; unknown ones are ignored."""
    codes = iter([[_number(part) for part in word.split(":")] for word in words.split(";")])
    for code, *rest in codes:
        if code == 0:
            paint = PLAIN
        elif code in ATTRIBUTES:
            paint = replace(paint, **{ATTRIBUTES[code]: rest[:1] != [0]})  # 4:0 means no underline
        elif code in ENDS:
            paint = replace(paint, **dict.fromkeys(ENDS[code], False))
        elif code in (38, 48):
            colour = _extended(rest, (first for first, *_ in codes))
            if colour is not None:
                paint = replace(paint, colour=colour) if code == 38 else replace(paint, ground=colour)
        elif code in (39, 49):
            paint = replace(paint, colour=None) if code == 39 else replace(paint, ground=None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            paint = replace(paint, colour=code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            paint = replace(paint, ground=code - 40 if code < 100 else code - 92)
    return paint


def _extended(rest: list[int], following: Iterator[int]) -> Colour | None:
    """Return the colour of `38;5;208` or `38;2;255;128;0`; with colons (`rest`), a colour space may precede the three numbers."""
    numbers = iter(rest) if rest else following
    mode = next(numbers, 0)
    values = rest[-3:] if rest and mode == 2 else list(islice(numbers, {5: 1, 2: 3}.get(mode, 0)))
    if any(value > 255 for value in values):
        return None
    match mode, values:
        case 5, [number]:
            return number
        case 2, [red, green, blue]:
            return red, green, blue
    return None


def _number(digits: str) -> int:
    return int(digits[-9:] or 0)
