"""All the recommendations for a machine: every piece that there is, asked in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dstui.check.rules.machine import (
    health,  # noqa: F401 - importing them registers their pieces
    placement,  # noqa: F401 - importing them registers their pieces
    variables,  # noqa: F401 - importing them registers their pieces
)
from dstui.check.rules.machine.recommendation import MACHINE_RULES, Recommendation, Requirement
from dstui.machine.snapshot import Machine

MARKS = {"error": "✗", "warning": "▲", "info": "·"}


def recommend(machine: Machine, requirement: Requirement | None = None) -> list[Recommendation]:
    """All recommendations for a job on a machine (for any job where `requirement` is not given), the gravest first."""
    requirement = requirement or Requirement()
    found = [
        replace(recommendation, level=recommendation.level or known.level, code=known.code, source=known.source)
        for known in MACHINE_RULES.values()
        for recommendation in known.evaluate(machine, requirement)
    ]
    return sorted(found, key=lambda recommendation: ("error", "warning", "info").index(recommendation.level or "info"))


def recommendation_lines(machine: Machine) -> Iterator[str]:
    """The recommendations for any job on this machine as lines of text, the gravest first."""
    for recommendation in recommend(machine):
        yield f"{MARKS[recommendation.level or 'info']} {recommendation.message}"
        if recommendation.fix and recommendation.level != "info":
            yield f"  → {recommendation.fix}"
