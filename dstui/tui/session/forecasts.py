"""Forecasts for the open Plan, computed where its findings are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from dstui.assess import Facts
from dstui.forecast.choices import CHOICES, Choice, table
from dstui.forecast.forecast import Forecast
from dstui.forecast.model import ModelFacts
from dstui.forecast.recommend import RankedPlans, recommend
from dstui.forecast.setup import Place
from dstui.render.target import Target

PLACES: tuple[Place, ...] = ("none", "cpu", "nvme")


class Outlook:
    """The forecast of one Plan, and of its alternatives."""

    def __init__(self, target: Target, facts: Facts, found: Forecast) -> None:
        assert facts.models is not None
        self.plan, self.facts, self.machine, self.pool = target.plan, facts.models, target.machine, target.pool
        measured = facts.measured
        self.runs = measured.runs(self.machine) if measured else ()
        """Runs of this model on this machine, oldest first."""
        self._measured = measured.of(self.machine) if measured else {}
        self.forecast = found

    @cached_property
    def choices(self) -> Mapping[Choice, Forecast]:
        """Return the forecasts of each stage and offload, and of each option of steps 3 and 4; empty for several models."""
        setup = self.forecast.setup
        if setup is None or not isinstance(self.facts, ModelFacts):
            return {}
        stage, optimizer, param = setup.stage, setup.optimizer_offload, setup.param_offload
        own = [Choice(other, optimizer, param) for other in range(4)]
        own += [way for place in PLACES for way in (Choice(stage, place, param), Choice(stage, optimizer, place))]
        return table(self.plan, self.facts, self.machine, self.pool, measured=self._measured, choices=(*CHOICES, *own))

    def recommended(self) -> RankedPlans:
        """Return the plans that fit, the best first. Takes tens of milliseconds: call it in a thread."""
        return recommend(self.plan, self.facts, self.machine, self.pool, measured=self._measured)
