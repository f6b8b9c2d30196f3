"""Rules about holes that are still open, and about shell syntax."""

from __future__ import annotations

from itertools import groupby

from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan.holes import find_holes, find_shell_text


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
