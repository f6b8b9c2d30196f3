"""The page of what the field's guides ask for: it is whole, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "accelerate-acceptance.md").read_text()
ROW = re.compile(r"^\| (A?\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_thing_that_the_guides_ask_for_has_its_row() -> None:
    numbers = [number for number, _, _ in ROW.findall(PAGE)]
    assert [number for number in numbers if number.startswith("A")] == [f"A{n}" for n in range(1, 115)]
    assert len(numbers) == len(set(numbers)) == PAGE.count("\n| ") - 4, "each row has a number, what is asked for and what shows it"


def test_every_test_that_is_named_is_there() -> None:
    named = set(NAMED.findall(PAGE))
    assert len(named) > 60
    texts = {file: (ROOT / file).read_text() for file, _ in named}
    missing = [f"{file}::{name}" for file, name in named if name and not re.search(rf"^(?:async )?def {name}\(", texts[file], re.MULTILINE)]
    assert missing == []
