"""docs/expectations.md and docs/accelerate-acceptance.md are complete, and every test and case that they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "accelerate-acceptance.md").read_text()
EXPECTED = (ROOT / "docs" / "expectations.md").read_text()
ROW = re.compile(r"^\| (A?\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+)(?:\[([^]`]+)\])?)?`")
MANY = 20
"""A test with more cases than this only counts as proof by a named case."""


def test_acceptance_page_covers_every_topic_of_the_guides() -> None:
    numbers = [number for number, _, _ in ROW.findall(PAGE)]
    assert [number for number in numbers if number.startswith("A")] == [f"A{n}" for n in range(1, 115)]
    assert len(numbers) == len(set(numbers)) == PAGE.count("\n| ") - 4 == 114 + 90, "each row has a number, a topic and a proof"
    assert all(NAMED.search(shown) for _, _, shown in ROW.findall(PAGE)), "each row names a test"


def test_expectations_page_covers_every_terminal_program_expectation() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| (?:yes|in part|no)[^|]* \| `tests/[^|]+\|$", EXPECTED, re.MULTILINE)
    assert rows == [str(number) for number in range(1, 61)]


def test_features_of_other_programs_have_a_test_or_a_reason() -> None:
    rows = [line.split(" | ") for line in EXPECTED.partition("## What other programs have")[2].splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 25
    assert [row for row in rows if len(row) != 4] == []
    assert [row for row in rows if not (NAMED.search(row[3]) if "yes" in row[2] else row[2].startswith("no: "))] == []


def test_every_named_test_exists() -> None:
    named = set(NAMED.findall(PAGE)) | set(NAMED.findall(EXPECTED))
    assert len(named) > 150
    texts = {file: (ROOT / file).read_text() for file, _, _ in named}
    missing = [
        f"{file}::{name}" for file, name, _ in named if name and not re.search(rf"^(?:async )?def {name}\(", texts[file], re.MULTILINE)
    ]
    assert missing == []


def test_every_named_case_exists_and_large_tests_are_named_by_case() -> None:
    named = [(f"{file}::{name}", case) for file, name, case in NAMED.findall(PAGE) if name]
    words = ["-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider", *sorted({test for test, _ in named})]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    collected = [line.rstrip("]").partition("[") for line in done.stdout.splitlines() if "::" in line]
    missing = [f"{test}[{case}]" for test, case in named if case and not any(_matches(case, id_) for it, _, id_ in collected if it == test)]
    assert missing == []
    of_many = {test for test, count in Counter(test for test, _, _ in collected).items() if count > MANY}
    assert sorted({test for test, case in named if test in of_many and not case}) == []


def _matches(case: str, collected: str) -> bool:
    """Return whether a case matches a name: exactly, or by its beginning (`DS055` for DS055_1, `AC010` for AC010-zero_stage)."""
    return collected == case or re.match(rf"{re.escape(case)}(?:[-_,]|\d+$)", collected) is not None
