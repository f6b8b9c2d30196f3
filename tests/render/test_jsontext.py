"""ds_config.json is the Plan's deepspeed section, with numbers spelled as there."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dstui.plan import load
from dstui.render.jsontext import json_lines, json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_text_reads_back_as_the_value(value: Any) -> None:
    assert json.loads(json_text(value)) == value


NAMED = st.recursive(
    st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", min_size=1), NAMED, max_size=3))
def test_every_line_has_its_path(value: dict[str, Any]) -> None:
    for line in json_lines(value):
        at: Any = value
        for part in filter(None, line.path.split(".")):
            at = at[part] if isinstance(at, dict) else at[int(part)]
        text = line.text.strip().rstrip(",").rpartition(": ")[2]
        assert text == json.dumps(at) or text in "{}[]"
        name = line.path.rpartition(".")[2]
        assert f'"{name}": ' in line.text or not name or name.isdigit() or text in "}]"


def test_numbers_keep_their_spelling_if_json_has_it() -> None:
    plan = load("version: 1\njob: {script: a}\ndeepspeed: {a: 5e8, b: 1e-4, c: 1.50, d: 0x10, e: .5, f: +1, g: 007, h: .inf, i: 1E3}\n")
    text = json_text(plan.deepspeed)
    assert [line.split(": ")[1].rstrip(",") for line in text.splitlines()[1:-1]] == [
        "5e8", "1e-4", "1.50", "16", "0.5", "1", "7", "Infinity", "1E3",
    ]  # fmt: skip
    assert math.isinf(json.loads(text)["h"])


def test_list_of_scalars_stays_on_one_line() -> None:
    assert [line.text for line in json_lines({"betas": [0.9, 0.999], "nested": [{"a": 1}], "none": [], "empty": {}})] == [
        "{",
        '  "betas": [0.9, 0.999],',
        '  "nested": [',
        "    {",
        '      "a": 1',
        "    }",
        "  ],",
        '  "none": [],',
        '  "empty": {}',
        "}",
    ]
