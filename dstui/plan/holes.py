"""Holes of a Plan: `${NAME}`, which only the user or the cluster can fill. `$${` is a literal `${`.

A launch fills them from its environment. Other shell syntax (`$X`, `$(…)`, a leading `~` in an argument) has no meaning in a Plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.plan.plan import Plan

HOLE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)\}")
SHELL = re.compile(r"(?<![$\\])\$(?:[A-Za-z_]\w*|\d|\(|\{[A-Za-z_]\w*[^\w}])|`[\w./-][^`]*`|^~(?=/|$)")
"""Text that a shell would expand and a Plan does not. `$${…}` is a literal."""
SECTIONS = ("name", "job", "model", "models", "cluster", "accelerate", "deepspeed")
"""Keys at the top of a Plan that may have holes. The commands of `run` are expanded by a shell."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole, with the dotted path of the value that contains it."""

    path: str
    name: str


def find_holes(plan: Plan) -> list[Hole]:
    """Return the holes of a Plan, in the order of its text."""
    return [Hole(path, match[1]) for path, text in _texts(plan) for match in HOLE.finditer(text) if match[1]]


def find_shell_text(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield path and text of shell syntax in arguments and variables, which no shell reads."""
    for path, text in _texts(plan):
        if path.startswith(("job.args", "cluster.env", "cluster.launcher_args")) and (found := SHELL.search(text)):
            yield path, found[0]


def fill_holes(plan: Plan, environment: Mapping[str, str]) -> Plan:
    """Return the Plan with the holes filled that the environment has a value for. Raises PlanError."""
    for path, text in list(_texts(plan)):
        value: Any = fill_text(text, environment)
        if value == text:
            continue
        if HOLE.fullmatch(text) and path.startswith(("deepspeed.", "models.", "accelerate.", "model.")):
            value = plan.parse(path, value)  # `${LR}` alone is the number that it stands for
        plan = plan.set(*_own(plan, path, value))
    return plan


def _own(plan: Plan, path: str, value: Any) -> tuple[str, Any]:
    """Return the path and value to write into the Plan. An item of an inherited list cannot be written alone, only the whole list."""
    parent, _, last = path.rpartition(".")
    items = plan.get(parent) if last.isdigit() else None
    if not isinstance(items, list) or plan.document.node(tuple(plan.parts(parent))) is not None:
        return path, value
    return parent, [*items[: int(last)], value, *items[int(last) + 1 :]]


def fill_text(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with the holes filled that the environment has a value for."""

    def value_of(match: re.Match[str]) -> str:
        value = environment.get(match[1]) if match[1] else None
        return match[0] if value is None else value.replace("${", "$${")

    return HOLE.sub(value_of, text)


def describe_open_holes(still_open: Sequence[Hole]) -> str:
    """Return the message that refuses a launch with open holes."""
    listed = "\n".join(f"  {hole.path}: ${{{hole.name}}}" for hole in still_open)
    return f"The Plan has open holes: set these variables, or write their values into the Plan\n{listed}"


def unescape_holes(text: str) -> str:
    """Return the text that a program gets: `$${` becomes `${`."""
    return text.replace("$${", "${")


def _texts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield path and text of every string that may contain a hole."""
    if not plan.beneath and "$" not in plan.text and "`" not in plan.text and "~" not in plan.text:
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
