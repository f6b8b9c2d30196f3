"""What is forecast of the Plan that is open. Worked out where findings are; what only a part of the screen asks for, when it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dstui.forecast.capacity import Capacity, capacity_of
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import CHOICES, Facts, Forecast, Modelled, forecast, models_of
from dstui.forecast.model import ModelFacts
from dstui.forecast.rates import Rates, rates_of
from dstui.forecast.recommend import forecast_of
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.finding import Finding
from dstui.tui.models import FactsOf


class Outlook:
    """The forecast of one Plan, and of the same with something else chosen."""

    def __init__(self, plan: Plan, facts: Facts, machine: Machine, pool: Mapping[str, int] | None) -> None:
        self.plan, self.facts, self.machine, self.pool = plan, facts, machine, pool
        self.forecast = forecast(plan, facts, machine, pool)
        self._others: dict[tuple[tuple[str, Any], ...], Forecast] = {}

    def findings(self) -> list[Finding]:
        """What does not fit."""
        return findings_of(self.plan, self.facts, self.machine, self.pool, self.forecast)

    @cached_property
    def _alone(self) -> tuple[Modelled, Capacity, Rates] | None:
        """The one model of the Plan with the room and the rates; None where there are several, or it is not known."""
        if not isinstance(self.facts, ModelFacts) or self.facts.problem:
            return None
        room = capacity_of(self.plan, self.machine, self.pool)
        models, _said = models_of(self.plan, self.facts, room, self.machine)
        return (models[0], room, rates_of(self.machine, room.gpus, room.nodes)) if len(models) == 1 else None

    def with_(self, **changes: Any) -> Forecast | None:
        """The forecast with these fields of the setup as given; None where it cannot be said."""
        if self._alone is None:
            return None
        key = tuple(sorted(changes.items()))
        if key not in self._others:
            one, room, rates = self._alone
            self._others[key] = forecast_of(one, one.setup._replace(**changes), room, rates)
        return self._others[key]

    def choices(self) -> list[tuple[str, Forecast, bool]]:
        """Each ZeRO stage and offload by its name, and whether the Plan has it."""
        now = self.forecast.setup
        made = [(name, self.with_(**choice), choice) for name, choice in CHOICES.items()]
        same = ("stage", "optimizer_offload", "param_offload")
        return [(name, told, now is not None and all(getattr(now, f) == c[f] for f in same)) for name, told, c in made if told is not None]


def outlook_of(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, seen: Mapping[Any, Any]) -> Outlook | None:
    """The outlook on a Plan; None where it names no model, or nobody has looked at its files yet."""
    asked = FactsOf.of(plan)
    facts = seen.get(asked) if asked.on_disk else asked.look()  # a bare number needs no file
    return Outlook(plan, facts, machine, pool) if facts is not None else None
