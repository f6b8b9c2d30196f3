"""Colours in the lines of scripts become styles, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs.colours import PLAIN, Paint, colour_runs
from dstui.logs.decode import decode

WRITTEN = st.lists(
    st.one_of(
        st.sampled_from(
            ["a", "loss 1.5", "é", "\t", "\r", "\b", "\x00", "\x1b", "\x9b31m", "\x1b]0;title\x07", "\x1b]8;;x", "\x1b[2J", "漢"]
        ),
        st.text(alphabet="0123456789;:", max_size=12).map(lambda words: f"\x1b[{words}m"),
    ),
    max_size=12,
).map("".join)


@given(written=WRITTEN)
def test_coloured_text_equals_the_shown_text(written: str) -> None:
    raw = f"\x1b[31m{written}".encode()
    found = colour_runs(raw)
    assert not found or "".join(text for text, _ in found) == decode(raw)
    assert all(isinstance(part, int) and part < 256 for _, paint in found for part in (*numbers(paint.colour), *numbers(paint.ground)))


def numbers(colour: object) -> tuple[object, ...]:
    return colour if isinstance(colour, tuple) else () if colour is None else (colour,)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("\x1b[31mred\x1b[0m plain", [("red", Paint(1)), (" plain", PLAIN)]),
        ("\x1b[1;92;44mx", [("x", Paint(10, 4, bold=True))]),
        ("\x1b[38;5;208mx\x1b[39my", [("x", Paint(208)), ("y", PLAIN)]),
        ("\x1b[48;2;255;128;0mx", [("x", Paint(ground=(255, 128, 0)))]),
        ("\x1b[38:2::255:128:0mx", [("x", Paint((255, 128, 0)))]),
        ("\x1b[4;3mx\x1b[24;23my", [("x", Paint(underline=True, italic=True)), ("y", PLAIN)]),
        ("\x1b[31mbar\r\x1b[32mdone", [("done", Paint(2))]),
        ("\x1b[36ma\tb", [("a       b", Paint(6))]),
        ("\x1b[5;8mseen", []),
        ("\x1b[38;5;999mx", []),
        ("no colour", []),
        ("\x1b[31m" + "x" * 5000, []),
    ],
)
def test_only_sgr_sequences_give_styles(written: str, found: list[tuple[str, Paint]]) -> None:
    assert list(colour_runs(written.encode())) == found
