"""Assess a Plan before it runs: findings and forecast in one pure function for every face.

A face gathers the facts (`dstui.surroundings`, or the TUI's services), calls `assess` and shows the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.dataclass import dataclass
from dstui.check import PlanFacts
from dstui.plan.finding import Finding, sort_findings

if TYPE_CHECKING:
    from dstui.facts.measured import Measured
    from dstui.forecast.forecast import Forecast
    from dstui.forecast.modelled import Facts as ModelFacts
    from dstui.render.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(PlanFacts):
    """The facts around a Plan: those that its rules judge, and those for the forecast."""

    models: ModelFacts | None = None
    """The files of the models for the forecast; None if the Plan names none."""
    measured: Measured | None = None
    """Measurements of earlier runs of these models on this machine."""
    locks: Sequence[Path] = ()
    """Lock files that killed builds have left where the ranks build ops."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The verdict on a Plan that every face shows."""

    findings: tuple[Finding, ...]
    """The most severe first."""
    forecast: Forecast | None = None
    """None if the Plan names no model, or its files were not read."""


def assess(
    target: Target,
    facts: Facts,
    *,
    world_size: int | None = None,
    integration: str | None = None,
    deepspeed_version: str | None = None,
) -> Assessment:
    """Judge a Plan on a Machine. The keyword arguments override what the Plan and the Machine say."""
    from dstui.check import check_plan

    findings = check_plan(target, facts, world_size=world_size, integration=integration, deepspeed_version=deepspeed_version)
    found = None
    if facts.models is not None:
        from dstui.forecast.findings import findings_of  # most Plans without a model do not need the forecast's modules
        from dstui.forecast.forecast import forecast

        measured = facts.measured.of(target.machine) if facts.measured is not None else {}
        found = forecast(target.plan, facts.models, target.machine, target.pool, measured=measured)
        if target.hosts_machine is not None:
            findings += findings_of(target.plan, facts.models, target.machine, target.pool, found, measured=measured)
    if facts.locks and not target.machine.recorded:
        from dstui.jobs.store.op_locks import lock_findings

        findings += lock_findings(facts.locks)
    return Assessment(tuple(sort_findings(findings)), found)
