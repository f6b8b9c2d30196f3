"""tests/terminal.py draws what pyte draws."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st

from tests.terminal import Screen, Stream

COLUMNS, ROWS = 12, 4
WRITTEN = ["ab c", "step 1/2", "─│", "漢字", "e\u0301", "\t", "\r\n", "\x07", "\x1b[31m", "\x1b[1;38;2;1;2;3;48;5;9m", "\x1b[m", "\x1b[;4m"]
WRITTEN += ["\x1b[2J", "\x1b[3;5H", "\x1b[K", "\x1b[4h", "\x1b[4l", "\x1b[?7l", "\x1b[?7h", "\x1b(0", "\x1b(B", "\x0e", "\x0f", "\x1b[2L"]
WRITTEN += ["\x1b]0;a title\x07", "\x1b]0;\x1b[31m\x07", "\x1b[?25l", "\x1b7", "\x1b8", "\x1bc", "\x1b["]


@given(st.lists(st.sampled_from(WRITTEN), max_size=20), st.integers(1, 99))
def test_terminal_draws_like_pyte(written: list[str], at_once: int) -> None:
    ours, theirs = Screen(COLUMNS, ROWS), pyte.Screen(COLUMNS, ROWS)
    data = "".join(written).encode()
    for stream in (Stream(ours), pyte.ByteStream(theirs)):
        for start in range(0, len(data), at_once):
            stream.feed(data[start : start + at_once])
    assert [[ours.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)] == [
        [theirs.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)
    ]
    assert (ours.cursor.x, ours.cursor.y, ours.cursor.attrs, ours.title) == (
        theirs.cursor.x,
        theirs.cursor.y,
        theirs.cursor.attrs,
        theirs.title,
    )
