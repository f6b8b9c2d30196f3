"""A search through a rank's whole log finds what a look at every shown line would find."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.run.logfile import LogFile
from dstui.tui.logs import LogLine, Merged, OneRank, Search

LINES = [f"step {number} loss {'nan' if number % 97 == 0 else 1.5}" for number in range(40_000)] + ["Error: École \x1b[31mred\x1b[0m"]


@pytest.mark.parametrize(
    ("text", "regex"),
    [
        ("step 399", False),
        ("loss NAN", False),
        ("error", False),
        ("École", False),
        ("école", False),
        (r"^step 3\d+7 .*nan$", True),
        ("gone", False),
    ],
)
def test_a_file_and_its_lines_in_memory_have_the_same_matches(tmp_path: Path, text: str, regex: bool) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(LINES) + "\n")
    log, merged = LogFile(path), Merged()
    log.poll()
    for number in range(log.lines):
        merged.add(LogLine(0, log.line(number)))
    searches = [Search(text, lines, regex=regex) for lines in (OneRank(0, log), merged)]
    for search in searches:
        while not search.complete:
            search.advance()
    assert searches[0].found == searches[1].found
