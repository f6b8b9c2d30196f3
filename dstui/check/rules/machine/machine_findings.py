"""All findings about a machine, from every rule about machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dstui.check.rule import rules_of
from dstui.check.rules.machine import health, packages, placement, variables
from dstui.check.rules.machine.machine_finding import MachineFinding, MachineRule
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.snapshot import Machine

MODULES = (health, packages, placement, variables)
RULES = [rule for rule in rules_of(*MODULES).values() if isinstance(rule, MachineRule)]
MARKS = {"error": "✖", "warning": "▲", "info": "·"}


def check_machine(machine: Machine, requirement: Requirement | None = None) -> list[MachineFinding]:
    """Return all findings for a job on a machine (for any job without a `requirement`), most severe first."""
    requirement = requirement or Requirement()
    found = [
        replace(finding, level=finding.level or rule.severity, code=rule.code, source=rule.source)
        for rule in RULES
        for finding in rule.find(machine, requirement)
    ]
    return sorted(found, key=lambda finding: ("error", "warning", "info").index(finding.level or "info"))


def machine_finding_lines(machine: Machine) -> Iterator[str]:
    """Yield the findings for any job on this machine as lines of text, most severe first."""
    for finding in check_machine(machine):
        yield f"{MARKS[finding.level or 'info']} {finding.message}"
        if finding.fix and finding.level != "info":
            yield f"  → {finding.fix}"
