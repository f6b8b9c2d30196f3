"""When the TUI draws in ASCII only."""

from __future__ import annotations

import ast
import codecs
from pathlib import Path

import pytest
from rich.cells import cell_len

import dstui
from dstui.base.glyphs import LIKE, wants_ascii
from dstui.tui.kit.drawing import _likeness


@pytest.mark.parametrize(
    ("environment", "ascii_only"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C.utf8"}, False),
        ({"LC_ALL": "de_DE.utf-8", "LANG": "C"}, False),
        ({"LANG": "en_US.ISO-8859-1"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "POSIX"}, True),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, True),
        ({"LANG": "en_US.UTF-8", "DSTUI_ASCII": "1"}, True),
    ],
)
def test_locale_terminal_and_user_decide_about_ascii(environment: dict[str, str], ascii_only: bool) -> None:
    assert wants_ascii(environment) is ascii_only


def test_replacement_of_a_glyph_is_ascii_and_of_equal_width() -> None:
    assert all(LIKE[chr(0x2800 + dots)] == plain for dots, plain in {0: " ", 0x09: "'", 0xC0: ".", 0x06: "-", 0x47: "|"}.items())
    assert all(plain.isascii() and cell_len(plain) == cell_len(glyph) == 1 for glyph, plain in LIKE.items())


def test_braille_picture_does_not_become_question_marks() -> None:
    curve = "".join(chr(0x2800 + dots) for dots in range(256))
    codecs.register_error("dstui.likeness.test", _likeness)
    assert b"?" not in f"┤{curve}●✖•".encode("ascii", "dstui.likeness.test")


def test_every_glyph_of_the_screens_has_a_replacement() -> None:
    package, undrawn = Path(dstui.__file__).parent, dict[str, str]()
    for file in (*package.glob("tui/**/*.py"), package / "runs" / "table.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                undrawn |= {char: file.name for char in node.value if not char.isascii() and char not in LIKE}
    assert undrawn == {}
