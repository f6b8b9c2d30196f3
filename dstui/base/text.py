"""Make text from outside safe to show: no escape sequence of a log, a file or a name reaches the terminal.

A plain line passes in 0.2 µs (`str.isprintable`). Only other lines pay for the regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LINE_CAP = 4096
"""Characters of one line that are kept. The rest is counted and not shown."""

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement, erasing
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM and APC with their text
    r"|\x1b[ -/]*[0-~]"  # every other escape; the text of an OSC that never ends stays, harmless
)
UNSAFE = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 but tab, DEL, C1
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"  # bidirectional controls and line separators reorder what a reader sees
    r"\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates cannot be encoded, tag characters cannot be seen
)


def sanitise(raw: str, length: str = "") -> str:
    """Return one line that is safe to show: the last segment between carriage returns, without escapes and controls, cut at LINE_CAP.

    `length` describes the length of the line of which `raw` is a part.
    """
    text = last_segment(raw) if "\r" in raw else raw
    if len(text) > LINE_CAP:
        length = length or f"{len(text):,} characters"
        text = text[: 2 * LINE_CAP]  # leaves room for escapes, which are removed below
    if not text.isprintable():
        text = UNSAFE.sub("", ESCAPES.sub("", text).expandtabs(8))
    return f"{text[:LINE_CAP]} … (a line of {length})" if length else text


def escaped(text: str) -> str:
    r"""Return text (any number of lines) with unsafe characters visible in JSON's spelling (`\u001b`). Newlines and tabs stay.

    Valid JSON stays the same JSON.
    """
    return text if text.isprintable() else UNSAFE.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    if match[0] == "\n":
        return "\n"
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def one_line(text: str) -> str:
    """Return escaped text on one line, since a name may contain newlines."""
    return escaped(text).replace("\n", " ")


def counted(number: object, noun: str) -> str:
    """Return a number with its noun in the singular or plural: 1 rank, 2 ranks, ? ranks if it is unknown."""
    return f"{number if isinstance(number, int) else '?'} {noun}{'s' * (number != 1)}"


def last_segment(text: str) -> str:
    """Return what a terminal would show of a progress bar: the text after the last carriage return, unless that is blank."""
    return next((segment for segment in reversed(text.split("\r")) if segment.strip()), "")


def similar_words(word: str, known: Iterable[str], most: int = 1, least: float = 0.6) -> list[str]:
    """Return up to `most` of the known words that are spelled like one, the nearest first. `least`: the least similarity, 0 to 1."""
    from difflib import get_close_matches  # nothing else at a start needs it

    return get_close_matches(word, list(known), most, least)
