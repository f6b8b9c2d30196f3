"""What `dstui import` could not take over, from the comments that it leaves at the head of a Plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan.finding import Fix

MADE = "# made by dstui from "
"""How an imported Plan begins; the comments below this line are the notes."""
KEY = re.compile(r"\b(?:job|model|cluster|accelerate|deepspeed)(?:\.\w+)+")
TO_BE_WRITTEN = re.compile(r"\b(?:is left (?:out|open)|write)\b")
"""A note that is settled as soon as the key that it names has a value."""
SAID_ELSEWHERE = re.compile(r"\$\{\w+\} is open: |  ")
"""An open hole, which is a finding of its own; the further lines of a list."""


@rule("PL072", "info", source="design: import")
def note_of_the_import(c: Context) -> Problems:
    """A note of the import at the top of the Plan, until it is removed."""
    if c.plan is None or MADE not in c.plan.text:
        return
    lines = c.plan.text.splitlines(keepends=True)
    for number, note in _notes(lines):
        named = KEY.search(note)
        path = named[0] if named else ""
        if SAID_ELSEWHERE.match(note) or (path and TO_BE_WRITTEN.search(note) and c.plan.get(path) is not None):
            continue
        fix = Fix("remove this note once it is dealt with", drops=lines[number])
        yield replace(about_the_plan(path, note, "the Plan has no key for it", fix), line=number + 1)


def _notes(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the place of each note among the lines, from 0, and its text."""
    first = next((number for number, line in enumerate(lines) if line.startswith(MADE)), len(lines))
    for number in range(first + 1, len(lines)):
        if not lines[number].startswith("# "):
            return
        yield number, lines[number][2:].rstrip()
