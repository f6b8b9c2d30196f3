"""Positions of keys in a JSON-like text."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dstui.adopt.positions import positions
from dstui.base.limits import LimitError

NAMES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=12,
)


def paths(value: Any, prefix: str = "") -> list[str]:
    """Return every dotted path, including paths through lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for name, inner in items:
        path = f"{prefix}{name}"
        found += [path] if isinstance(value, dict) else []
        found += paths(inner, path + ".")
    return found


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from((None, 1, 4)))
def test_every_key_and_nothing_else_is_found(value: dict[str, Any], indent: int | None) -> None:
    found = positions(json.dumps(value, indent=indent, ensure_ascii=False))
    assert sorted(found.keys) == sorted(set(paths(value)))
    assert found.words == [] and found.again == []


@given(st.text(max_size=200))
def test_scan_never_fails(text: str) -> None:
    with suppress(LimitError):
        positions(text)


def test_lines_columns_comments_bare_words_and_duplicates() -> None:
    text = '// why\n{a: b c, d\n  "e": {"f": 1, # one\n    "f": 2}, /* two */ "g": [{"h": true}]}'
    found = positions(text)
    assert found.keys["e.f"] == (3, 9)
    assert found.line_of("e.f") == 3 and found.line_of("g.nothing") == 4 and found.line_of("nothing") is None
    assert [(path, place.line) for path, place in found.again] == [("e.f", 4)]
    assert [(path, word) for path, _, word in found.words] == [("a", "b c, d")]
    assert len(found.comments) == 3
