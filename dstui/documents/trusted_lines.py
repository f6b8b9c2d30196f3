"""Decide which lines of a site or a team file run in a job: those that the user agreed to, once for each content.

A site file and a file that a Plan extends are data. Two of their values run in a job: the shell lines of `cluster.slurm.setup`, in the
job that sbatch starts, and `run.on_end`. What the Plan itself or the user's settings say was written by the user, or is theirs to check.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dstui.base.files import FileProblem, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.base.text import sanitise
from dstui.plan import Plan
from dstui.plan.holes import fill_text
from dstui.plan.layers import Origin

OPTION = "--trust-site"
"""The option that a command without dialogs takes for a yes."""
SETUP, ON_END = "cluster.slurm.setup", "run.on_end"
USERS_OWN = "settings"
"""The layer that the user wrote."""
MAX_ANSWERS = 1000
"""Answers that are remembered; the oldest are forgotten first."""

_of_this_process: list[str] = []
"""Answers that were given to this process: all that counts where nothing can be remembered."""


class Borrowed(NamedTuple):
    """Lines that run in a job and that another file than the Plan says."""

    path: str
    origin: Origin
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return the hash of their content, whichever file they are in."""
        import hashlib  # takes 2 ms, and few Plans have such lines

        return hashlib.sha256(json.dumps([self.path, self.lines]).encode()).hexdigest()

    def __str__(self) -> str:
        """Format them for a person."""
        where = ":".join(str(part) for part in (self.origin.source, self.origin.line) if part)
        source = f"{where} ({self.origin.layer})" if where else f"the {self.origin.layer}"
        return f"{self.path}, from {sanitise(source)}:\n" + "\n".join(f"    {sanitise(line)}" for line in self.lines)


def unagreed(plan: Plan) -> list[Borrowed]:
    """Return the lines of other files that a launch of this Plan would run and to which the user has not agreed yet."""
    known = {*_of_this_process, *_remembered()}
    return [lines for lines in borrowed(plan) if lines.digest not in known]


def borrowed(plan: Plan) -> Iterator[Borrowed]:
    """Yield the lines of other files that a launch of this Plan would run."""
    for path in (*((SETUP,) if plan.cluster.submits else ()), ON_END):
        effective = _lines(plan.get(path, None))
        for origin, lines in _said(plan, path):
            # a launch writes values with holes into the Plan: the lines count as the file's also then
            if effective and effective in (lines, tuple(fill_text(line, os.environ) for line in lines)):
                yield Borrowed(path, origin, lines)
                break


def agree(plan: Plan) -> None:
    """Remember the user's agreement. If the state folder cannot be written, it lasts as long as this process."""
    new = [lines.digest for lines in unagreed(plan)]
    if not new:
        return
    _of_this_process.extend(new)
    with suppress(FileProblem, OSError):
        _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(_file(), json.dumps([*_remembered(), *new][-MAX_ANSWERS:], indent=1) + "\n", replace=True)


def refusal(plan: Plan) -> str:
    """Return why a Plan is not launched yet; empty where it may be."""
    asked = unagreed(plan)
    if not asked:
        return ""
    told = "\n".join(f"  {lines}" for lines in asked)
    how = f"`dstui --headless PLAN {OPTION}` agrees to them, as does a yes in the TUI or with --plain: once, until they change"
    return f"This launch would run commands that are not in your Plan, and to which you have not agreed yet:\n{told}\n{how}"


def _said(plan: Plan, path: str) -> Iterator[tuple[Origin, tuple[str, ...]]]:
    """Yield what each file beneath a Plan says at a path, the uppermost first."""
    parts = tuple(path.split("."))
    for layer in reversed(plan.beneath.layers):
        if layer.name != USERS_OWN and (lines := _lines(_at(layer.values(), parts))):
            yield Origin(layer.name, layer.source, layer.line_of(parts)), lines
    for lock in plan.beneath.locks:
        if (
            lock.is_fixed
            and f"{path}.".startswith(f"{lock.path}.")
            and (lines := _lines(_at(lock.exact[0], parts[lock.path.count(".") + 1 :])))
        ):
            yield Origin("site", lock.source, lock.line), lines


def _at(values: Any, parts: tuple[str, ...]) -> Any:
    for part in parts:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _lines(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, (list, tuple)) else ()


def _file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("dstui") / "agreed_lines.json"


def _remembered() -> list[str]:
    with suppress(FileProblem, OSError, ValueError):
        found = parse_json(read_text(_file()))
        return [entry for entry in found if isinstance(entry, str)] if isinstance(found, list) else []
    return []
