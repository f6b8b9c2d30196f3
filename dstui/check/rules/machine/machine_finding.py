"""Rules about the machine: the consequences of its facts for a job, with reason and source. Pure functions on values.

One rule is one small function with a code that is unique among all rules of `dstui.check`:

    @machine_rule("MC007", "error", source="nvml.h, nvmlComputeMode_t")
    def compute_mode(machine: Machine, requirement: Requirement) -> MachineFindings:
        "A GPU whose compute mode forbids computing."
        yield MachineFinding("GPU 1 …", why="…", fix="…", path="…", sets=(("cluster.include", "localhost:0"),))

`check_plan` runs it for a Plan on a probed machine, `machine_findings.check_machine` for a machine alone. As few NCCL variables as possible
are recommended, since NCCL measures the same facts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.check.context import UNPROBED, Context, Problem, pointer
from dstui.check.rule import Problems, Rule, title_of
from dstui.check.rules.machine.requirement import Requirement, requirement_of
from dstui.machine.snapshot import Machine
from dstui.plan.finding import Fix, Operation, When

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """A remark on the machine. `sets` are the keys of a Plan that solve it: dotted path and value."""

    message: str
    why: str = ""
    fix: str = ""
    path: str = ""
    """The related key of the Plan; empty for the machine itself."""
    sets: tuple[tuple[str, Any], ...] = ()
    level: Level | None = None
    """The level, if it differs from the rule's."""
    code: str = ""
    """Set by `check_machine`, like the source."""
    source: str = ""


MachineFindings = Iterator[MachineFinding]
FindMachine = Callable[[Machine, Requirement], MachineFindings]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRule(Rule):
    """A rule that can also be run for a machine alone."""

    find: FindMachine


def machine_rule(code: str, level: Level, *, source: str) -> Callable[[FindMachine], MachineRule]:
    """Make a rule about the machine of a function, whose docstring is the title."""

    def made(find: FindMachine) -> MachineRule:
        def evaluate(c: Context) -> Problems:
            # Only a Plan is checked against the machine: a bare configuration names no GPUs.
            if c.plan is not None and c.machine is not None and c.machine.source != UNPROBED:
                for finding in find(c.machine, requirement_of(c)):
                    yield problem_of_machine(finding, c)

        when: When | None = "run" if level == "error" else None
        return MachineRule(code, level, title_of(find), evaluate, when, source=source, find=find)

    return made


def problem_of_machine(finding: MachineFinding, c: Context) -> Problem:
    """Convert a machine finding to a rule's problem, with a patch for its keys."""
    patch = tuple(_operation(c, path, value) for path, value in finding.sets)
    fix = Fix(finding.fix, patch or None) if finding.fix else None
    return Problem(f"^{finding.path}", finding.message, finding.why, fix=fix, severity=finding.level)


def _operation(c: Context, path: str, value: object) -> Operation:
    """Return the patch operation that writes a key of the Plan with the sections that it lacks."""
    assert c.plan is not None
    parts = path.split(".")
    depth = next((n for n in range(1, len(parts)) if not isinstance(c.plan.get(".".join(parts[:n])), Mapping)), len(parts))
    for name in reversed(parts[depth:]):
        value = {name: value}
    there = c.plan.get(".".join(parts[:depth])) is not None
    return {"op": "replace" if there else "add", "path": pointer(".".join(parts[:depth])), "value": value}
