"""Bytes of logs as lines that are safe to show."""

from __future__ import annotations

import re

from dstui.base.text import LINE_CAP, sanitise

LONGEST = 64 * 1024
"""Bytes of one line that are looked at."""
CSI = re.compile(rb"\x1b\[[0-9;:]*[A-Za-z]")
PLAIN = bytes(range(0x20, 0x7F)) + b"\n"


def decode(raw: bytes, length: int | None = None) -> str:
    """Bytes of a log as a safe line; what is not UTF-8 becomes U+FFFD. `length`: bytes of the whole line, where `raw` is a part of it.

    Of a very long line only one end is looked at: the last of a progress bar, else the first.
    """
    if len(raw) > LONGEST:
        length = length or len(raw)
        raw = raw[-LONGEST:] if b"\r" in raw[-LONGEST:-1] else raw[:LONGEST]
    return sanitise(raw.decode("utf-8", "replace"), f"{length:,} bytes" if length else "")


def strip_overwritten(raw: bytes) -> bytes:
    """A line without its escapes and what was overwritten in it; the same bytes where it has none."""
    return decode(raw).encode() if b"\x1b" in raw or b"\r" in raw else raw


def strip_colours(raw: bytes) -> bytes:
    """Lines without the escapes that may stand within a word; their number stays."""
    return CSI.sub(b"", raw) if b"\x1b" in raw else raw


def is_plain(raw: bytes) -> bool:
    """Whether all of these lines are shown as they are: printable ASCII, none of them too long."""
    return not raw.translate(None, PLAIN) and not has_long_line(raw)


def is_unadorned(raw: bytes) -> bool:
    """Whether these lines hold nothing that is shown otherwise than it is written, but for controls that nobody prints."""
    return raw.isascii() and not any(adornment in raw for adornment in (b"\x1b", b"\r", b"\t", b"\b"))


def has_long_line(raw: bytes) -> bool:
    """Whether one of these lines is cut where it is shown."""
    start = 0
    while len(raw) - start > LINE_CAP:
        newline = raw.rfind(b"\n", start, start + LINE_CAP + 1)
        if newline < 0:
            return True
        start = newline + 1
    return False


def decode_lines(raw: bytes) -> list[str]:
    """Several lines, as `decode` each: five times as fast where all are plain."""
    return raw.decode("ascii").split("\n") if is_plain(raw) else [decode(line) for line in raw.split(b"\n")]


def overwritten(raw: bytes) -> str:
    """A line with all that a progress bar has overwritten in it, as far as it is looked at; not safe to show."""
    return raw[-LONGEST:].decode("utf-8", "replace").replace("\r", " ")


def overdrawn(raw: bytes) -> str:
    """The progress bar that a line was written over, as tqdm's `write` does it; empty where there is none."""
    *before, _ = raw[-LONGEST:].rstrip(b"\r\n").rsplit(b"\r", 3)
    bar = next((segment for segment in reversed(before) if b"%|" in segment), b"")
    return sanitise(bar.decode("utf-8", "replace"))
