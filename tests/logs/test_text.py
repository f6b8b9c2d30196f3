"""Any log content is shown as harmless lines."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs import decode as decode_module
from dstui.logs.decode import LINE_CAP, decode, decode_lines, has_long_line, sanitise


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("step 1 loss 2.5", "step 1 loss 2.5"),
        ("\x1b[1;31mred\x1b[0m and \x9b32mgreen", "red and green"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y\x9d0;t\x9cz", "xyz"),
        ("\x1bPq#0;2;0;0;0\x1b\\picture\x1b_apc\x1b\\", "picture"),
        ("\x1b[2J\x1b[Hcleared\x1bc\x1b(B", "cleared"),
        ("an OSC without an end \x1b]0;text stays", "an OSC without an end 0;text stays"),
        ("  0%|\r 50%|#\r100%|##", "100%|##"),
        ("done\r\n".rstrip("\n"), "done"),
        ("bar\r      \r", "bar"),
        ("a\tb", "a       b"),
        ("evil\u202egnp.exe\u2066\u200f", "evilgnp.exe"),
        ("nul\x00bell\x07del\x7fc1\x85", "nulbelldelc1"),
        ("日本語 ✔ é", "日本語 ✔ é"),
        ("[rank0]: list[int] = [/bar]", "[rank0]: list[int] = [/bar]"),
        ("", ""),
    ],
)
def test_escapes_controls_and_progress_bars_are_removed(raw: str, shown: str) -> None:
    assert sanitise(raw) == shown


@given(st.text(st.characters() | st.sampled_from("\x1b[]0;m\x07\r\t\x9b\\P_"), max_size=200))
def test_no_control_character_passes(raw: str) -> None:
    shown = sanitise(raw)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert sanitise(shown) == shown


@given(st.binary(max_size=200))
def test_any_bytes_become_a_line(raw: bytes) -> None:
    assert decode(raw).isprintable() or unicodedata is not None
    decode(raw).encode()


def test_line_of_a_megabyte_is_cut_with_its_length() -> None:
    shown = decode(b"y" * 1_000_000)
    assert shown.startswith("y" * LINE_CAP + " …") and shown.endswith("(a line of 1,000,000 bytes)")


def test_last_state_of_a_long_progress_bar_is_shown() -> None:
    assert decode(b"".join(b"\r%7d/100000 done" % n for n in range(10_000))).strip() == "9999/100000 done … (a line of 200,000 bytes)"


@given(st.binary(max_size=100) | st.text("ab \t\n\r\x1bé", max_size=50).map(str.encode))
def test_lines_are_equal_together_and_one_by_one(raw: bytes) -> None:
    assert decode_lines(raw) == [decode(line) for line in raw.split(b"\n")]


def test_long_line_among_plain_ones_is_cut() -> None:
    assert [len(line) < 2 * LINE_CAP for line in decode_lines(b"short\n" + b"y" * 100_000 + b"\nshort")] == [True] * 3


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_cut_line_is_marked_among_others(lengths: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_module, "LINE_CAP", 9)
        assert has_long_line(b"\n".join(b"x" * length for length in lengths)) == (max(lengths) > 9)
