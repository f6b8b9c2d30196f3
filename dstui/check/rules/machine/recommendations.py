"""All the recommendations for a machine: every rule about it, asked in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dstui.check.rule import RULES
from dstui.check.rules.machine import (
    health,  # noqa: F401 - importing them registers their rules
    placement,  # noqa: F401
    variables,  # noqa: F401
)
from dstui.check.rules.machine.recommendation import MachineRule, Recommendation
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.snapshot import Machine

MARKS = {"error": "✗", "warning": "▲", "info": "·"}


def recommend(machine: Machine, requirement: Requirement | None = None) -> list[Recommendation]:
    """All recommendations for a job on a machine (for any job where `requirement` is not given), the gravest first."""
    requirement = requirement or Requirement()
    found = [
        replace(recommendation, level=recommendation.level or rule.severity, code=rule.code, source=rule.source)
        for rule in RULES.values()
        if isinstance(rule, MachineRule)
        for recommendation in rule.recommend(machine, requirement)
    ]
    return sorted(found, key=lambda recommendation: ("error", "warning", "info").index(recommendation.level or "info"))


def recommendation_lines(machine: Machine) -> Iterator[str]:
    """The recommendations for any job on this machine as lines of text, the gravest first."""
    for recommendation in recommend(machine):
        yield f"{MARKS[recommendation.level or 'info']} {recommendation.message}"
        if recommendation.fix and recommendation.level != "info":
            yield f"  → {recommendation.fix}"
