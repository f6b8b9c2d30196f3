"""A search in the bytes of a log finds the same lines as checking each line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.logs import grep
from dstui.logs.grep import compile_search, matching_lines

LINES = [f"step {n} loss {'nan' if n % 97 == 0 else 1.5}\x00{'!' * (n % 7)}" for n in range(300)] + [
    "Error: out of Memory",
    "",
    "École timeout",
]


def lines_that_match(lines: list[str], text: str, regex: bool, ignore_case: bool) -> list[int]:
    expression = re.compile(text if regex else re.escape(text), re.IGNORECASE if ignore_case else 0)
    return [number for number, line in enumerate(lines) if expression.search(line)]


@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize(
    ("text", "regex"),
    [
        ("step 29", False),
        ("loss NAN", False),
        ("o", False),
        ("École", False),
        ("", False),
        ("\x00!!", False),
        ("gone", False),
        ("gone", True),
        (r"^step 3\d+7 .*nan", True),
        ("step 1.*7 loss n", True),
        ("x*ste?p+ 2?9", True),
        ("^$", True),
        (r"\b(error|timeout|out of memory|nan|time)\b", True),
        (r"(err|n)\w", True),
    ],
)
@pytest.mark.parametrize("nul", [False, True])
def test_search_equals_checking_every_line(text: str, regex: bool, ignore_case: bool, nul: bool) -> None:
    lines = LINES if nul else [line.replace("\x00", "0") for line in LINES]
    wanted = compile_search(text, regex=regex, ignore_case=ignore_case)
    if wanted is None:
        assert ignore_case and not text.isascii()
        return
    for end in ("", "\n"):
        assert matching_lines(("\n".join(lines) + end).encode(), wanted) == lines_that_match(lines, text, regex, ignore_case)


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.text("abA", max_size=4), min_size=1, max_size=60),
    text=st.text("abA", min_size=1, max_size=3) | st.from_regex(r"[ab](\.|a[*?+])?b", fullmatch=True) | st.just(r"\b(ab|b|aba)\b"),
    ignore_case=st.booleans(),
    dense=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    numpy=st.booleans(),
)
def test_dense_and_rare_matches_are_found(lines: list[str], text: str, ignore_case: bool, dense: tuple[int, int], numpy: bool) -> None:
    grep.load_soon().join()
    with pytest.MonkeyPatch.context() as patch:
        if not numpy:
            patch.setattr(grep, "_numpy", None)
        patch.setattr(grep, "FEW", dense[0])
        patch.setattr(grep, "DENSE_HITS", dense[0])
        patch.setattr(grep, "DENSE_BYTES", dense[1])
        wanted = compile_search(text, regex=True, ignore_case=ignore_case)
        assert wanted is not None
        found = matching_lines("\n".join([*lines, "."]).encode(), wanted)
    assert found == lines_that_match(lines, text, True, ignore_case)


def test_every_line_is_tried_if_no_literal_is_required() -> None:
    for expression in ("a|b", "(a)?b", "[ab]c", r"\x41b", "a{0,1}b", "a?", "(?i)a", r"\b(a||b)\b"):
        wanted = compile_search(expression, regex=True, ignore_case=False)
        assert wanted is not None and wanted.texts == ()
