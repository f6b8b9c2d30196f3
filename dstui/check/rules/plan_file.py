"""Rules about the Plan as a file: holes, shell syntax, the notes that an import left at its top, and the layers and locks of the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan import Plan
from dstui.plan.finding import Fix
from dstui.plan.holes import find_holes, find_shell_text
from dstui.plan.layer_edits import own_operations
from dstui.plan.layers import Lock, spell
from dstui.plan.locks import broken_locks, describe_broken


@rule("PL070", "warning", when="launch", source="design: holes of a Plan")
def open_hole(c: Context) -> Problems:
    """A hole ${NAME}, which the environment of the launch must fill."""
    if c.plan is None:
        return
    for name, holes in groupby(sorted(find_holes(c.plan), key=lambda hole: hole.name), key=lambda hole: hole.name):
        paths = list(dict.fromkeys(hole.path for hole in holes))
        where = f", also in {', '.join(paths[1:4])}" if len(paths) > 1 else ""
        why = "a launch fills it from the environment, and is refused if the variable is not set"
        yield about_the_plan(paths[0], f"${{{name}}} is open{where}: set the variable {name}, or write the value", why)


@rule("PL071", "warning", when="run", source="design: holes of a Plan")
def text_of_a_shell(c: Context) -> Problems:
    """An argument or a variable that a shell would expand."""
    if c.plan is None:
        return
    for path, text in find_shell_text(c.plan):
        why = "no shell reads a Plan, so the ranks get this text unchanged; write a hole as ${NAME}"
        yield about_the_plan(path, f"{text} is shell syntax, which a Plan does not expand", why)


MADE = "# made by dstui from "
"""The first words of an imported Plan; the comments below this line are the notes."""
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


@rule("PL080", "error", when="launch", source="the site file (docs/site.md)")
def locked(c: Context) -> Problems:
    """A value that the site does not allow."""
    if c.plan is None:
        return
    for lock, value in broken_locks(c.plan):
        ask = f"; ask {c.plan.beneath.contact}" if c.plan.beneath.contact else ""
        why = f"locked in {lock.source}:{lock.line}"
        yield about_the_plan(lock.path, f"{describe_broken(c.plan, lock, value)}{ask}", why, _fix(c.plan, lock))


def _fix(plan: Plan, lock: Lock) -> Fix | None:
    """Return a fix that sets the only allowed value."""
    if not lock.exact or lock.path in plan.sets:
        return None
    path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in lock.path.split("."))
    patch = own_operations(plan.document, plan.data, ({"op": "add", "path": path, "value": lock.exact[0]},))
    return Fix(f"set {lock.path} to {spell(lock.exact[0])}", patch)


@rule("PL082", "warning", source="the site file (docs/site.md)")
def unused_layer(c: Context) -> Problems:
    """A site file or settings file that cannot be used, so that its values and locks do not apply."""
    if c.plan is not None:
        for problem in c.plan.beneath.problems:
            yield about_the_plan("", problem)
