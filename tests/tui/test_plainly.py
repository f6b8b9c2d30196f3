"""When the screen is drawn in ASCII alone."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dstui.tui.kit.ascii_output import LIKE, wanted


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
def test_the_locale_the_terminal_and_the_user_decide(environment: dict[str, str], ascii_only: bool) -> None:
    assert wanted(environment) is ascii_only


def test_what_stands_for_a_glyph_is_ascii_and_as_wide() -> None:
    assert all(plain.isascii() and cell_len(plain) == cell_len(glyph) == 1 for glyph, plain in LIKE.items())
