"""What is forecast of the Plan that is open. Worked out where findings are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dstui.forecast.choices import CHOICES, Choice, table
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import Facts, Forecast, forecast
from dstui.forecast.model import ModelFacts
from dstui.forecast.recommend import RankedPlans, recommend
from dstui.forecast.setup import Place
from dstui.machine.snapshot import Machine
from dstui.measured import Measured
from dstui.plan import Plan
from dstui.plan.finding import Finding
from dstui.tui.session.model_lookup import FactsOf, MeasuredOf

PLACES: tuple[Place, ...] = ("none", "cpu", "nvme")


class Outlook:
    """The forecast of one Plan, and what does not fit in it."""

    def __init__(
        self, plan: Plan, facts: Facts, machine: Machine, pool: Mapping[str, int] | None, measured: Measured | None = None
    ) -> None:
        self.plan, self.facts, self.machine, self.pool = plan, facts, machine, pool
        self.runs = measured.runs(machine) if measured else ()
        """What runs of this model took on this machine, oldest first."""
        self._measured = measured.of(machine) if measured else {}
        self.forecast = forecast(plan, facts, machine, pool, measured=self._measured)

    @cached_property
    def choices(self) -> Mapping[Choice, Forecast]:
        """What each stage and offload would need, and each answer of the steps of stage and offload; empty for several models."""
        setup = self.forecast.setup
        if setup is None or not isinstance(self.facts, ModelFacts):
            return {}
        stage, optimizer, param = setup.stage, setup.optimizer_offload, setup.param_offload
        own = [Choice(other, optimizer, param) for other in range(4)]
        own += [way for place in PLACES for way in (Choice(stage, place, param), Choice(stage, optimizer, place))]
        return table(self.plan, self.facts, self.machine, self.pool, measured=self._measured, choices=(*CHOICES, *own))

    def recommended(self) -> RankedPlans:
        """The plans that fit, the best first. Takes some tens of milliseconds: for a thread."""
        return recommend(self.plan, self.facts, self.machine, self.pool, measured=self._measured)

    def findings(self) -> list[Finding]:
        """What does not fit."""
        return findings_of(self.plan, self.facts, self.machine, self.pool, self.forecast, measured=self._measured)


def outlook_of(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, lookups: Mapping[Any, Any]) -> Outlook | None:
    """The outlook on a Plan; None where it names no model, or nobody has looked at its files yet."""
    asked = FactsOf.of(plan)
    facts = lookups.get(asked) if asked.on_disk else asked.resolve()  # a bare number needs no file
    return Outlook(plan, facts, machine, pool, lookups.get(MeasuredOf.of(plan))) if facts is not None else None
