"""Decode bytes of logs to lines that are safe to show."""

from __future__ import annotations

import re

from dstui.base.text import LINE_CAP, sanitise

LONGEST = 64 * 1024
"""Bytes of one line that are decoded."""
CSI = re.compile(rb"\x1b\[[0-9;:]*[A-Za-z]")
PLAIN = bytes(range(0x20, 0x7F)) + b"\n"


def decode(raw: bytes, length: int | None = None) -> str:
    """Decode bytes of a log to a safe line. Invalid UTF-8 becomes U+FFFD. `length`: bytes of the line of which `raw` is a part.

    Of a very long line only one end is decoded: the end of a progress bar, else the beginning.
    """
    if len(raw) > LONGEST:
        length = length or len(raw)
        raw = raw[-LONGEST:] if b"\r" in raw[-LONGEST:-1] else raw[:LONGEST]
    return sanitise(raw.decode("utf-8", "replace"), f"{length:,} bytes" if length else "")


def strip_overwritten(raw: bytes) -> bytes:
    """Return a line without escapes and overwritten text; the same object if it has none."""
    return decode(raw).encode() if b"\x1b" in raw or b"\r" in raw else raw


def strip_colours(raw: bytes) -> bytes:
    """Remove escapes, which may be inside of words. The number of lines stays."""
    return CSI.sub(b"", raw) if b"\x1b" in raw else raw


def is_plain(raw: bytes) -> bool:
    """Return whether all of these lines are displayed unchanged: printable ASCII, none too long."""
    return not raw.translate(None, PLAIN) and not has_long_line(raw)


def is_unadorned(raw: bytes) -> bool:
    """Return whether these lines contain nothing that is displayed differently, except rare control characters."""
    return raw.isascii() and not any(adornment in raw for adornment in (b"\x1b", b"\r", b"\t", b"\b"))


def has_long_line(raw: bytes) -> bool:
    """Return whether one of these lines is cut for display."""
    start = 0
    while len(raw) - start > LINE_CAP:
        newline = raw.rfind(b"\n", start, start + LINE_CAP + 1)
        if newline < 0:
            return True
        start = newline + 1
    return False


def decode_lines(raw: bytes) -> list[str]:
    """Decode several lines as `decode` does, five times as fast if all are plain."""
    return raw.decode("ascii").split("\n") if is_plain(raw) else [decode(line) for line in raw.split(b"\n")]


def overwritten(raw: bytes) -> str:
    """Return the end of a line including all overwritten text. Not safe to show."""
    return raw[-LONGEST:].decode("utf-8", "replace").replace("\r", " ")


def overdrawn(raw: bytes) -> str:
    """Return the progress bar that a line overwrote, as tqdm's `write` does; "" if there is none."""
    *before, _ = raw[-LONGEST:].rstrip(b"\r\n").rsplit(b"\r", 3)
    bar = next((segment for segment in reversed(before) if b"%|" in segment), b"")
    return sanitise(bar.decode("utf-8", "replace"))
