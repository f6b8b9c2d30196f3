"""Holes of a Plan: `${NAME}`, which only the user or the cluster can fill; `$${` is a literal `${`.

A launch fills them from its environment. What other shell text means (`$X`, `$(…)`, a leading `~` in an argument) a Plan does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dstui.plan.plan import Plan

HOLE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)\}")
SHELL = re.compile(r"(?<![$\\])\$(?:[A-Za-z_]\w*|\d|\(|\{[A-Za-z_]\w*[^\w}])|`[\w./-][^`]*`|^~(?=/|$)")
"""What a shell would expand, and a Plan does not. `$${…}` is a literal."""
SECTIONS = ("job", "model", "models", "cluster", "accelerate", "deepspeed")
"""Where holes may stand: `run` has commands of its own, which a shell expands."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole, and the dotted path of the value that it stands in."""

    path: str
    name: str


def holes_of(plan: Plan) -> list[Hole]:
    """Return the holes of a Plan, in the order of its text."""
    return [Hole(path, match[1]) for path, text in _texts(plan) for match in HOLE.finditer(text) if match[1]]


def shell_text_of(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield path and text of what looks like the shell's among the arguments and variables, which no shell reads."""
    for path, text in _texts(plan):
        if path.startswith(("job.args", "cluster.env", "cluster.launcher_args")) and (found := SHELL.search(text)):
            yield path, found[0]


def filled(plan: Plan, environment: Mapping[str, str]) -> tuple[Plan, list[Hole]]:
    """Return the Plan with its holes filled from an environment, and the holes that are still open. Raises PlanError."""
    open_holes = [hole for hole in holes_of(plan) if hole.name not in environment]
    if open_holes:
        return plan, open_holes
    for path, text in list(_texts(plan)):
        if HOLE.search(text):
            value: Any = HOLE.sub(lambda match: environment[match[1]] if match[1] else "${", text)
            if HOLE.fullmatch(text) and path.startswith(("deepspeed.", "models.", "accelerate.", "model.")):
                value = plan.parse(path, value)  # `${LR}` alone is the number that it stands for
            plan = plan.set(path, value)
    return plan, []


def _texts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Path and text of every string in which a hole may stand."""
    if "$" not in plan.text and "`" not in plan.text and "~" not in plan.text:
        return
    for section in SECTIONS:
        yield from _below(section, plan.data.get(section))


def _below(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _below(f"{path}.{name}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _below(f"{path}.{number}", item)
