"""ZeRO stage and offload as choices: those that are possible, and a forecast for each with all other settings of the Plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dstui.forecast.capacity import Capacity, capacity_of
from dstui.forecast.forecast import Forecast, assembled, rates_for
from dstui.forecast.model import ModelFacts
from dstui.forecast.modelled import models_of
from dstui.forecast.setup import Place, Setup
from dstui.machine.snapshot import Machine
from dstui.plan import Plan

ON_CPUS = frozenset({"adam", "adamw", "torch_adamw", "adagrad", "lion"})
"""Optimizers that DeepSpeed also has for CPUs."""
WHERE: Mapping[Place, str] = {"cpu": "in RAM", "nvme": "on NVMe"}


class Choice(NamedTuple):
    """A ZeRO stage, and the places of the optimizer states and the weights."""

    stage: int
    optimizer: Place = "none"
    param: Place = "none"

    @property
    def offload(self) -> str:
        """Describe what is offloaded; "" for nothing."""
        if self.optimizer == "none":
            return f"weights {WHERE[self.param]}" if self.param != "none" else ""
        return f"{'all' if self.param == self.optimizer else 'optimizer'} {WHERE[self.optimizer]}"

    def possible(self, setup: Setup, room: Capacity) -> bool:
        """Return whether DeepSpeed supports the choice and the machine has the place."""
        places = {self.optimizer, self.param} - {"none"}
        stages = {"optimizer": 3 if self.optimizer == "nvme" else 1, "param": 3}
        allowed = all(self.stage >= stages[what] for what in ("optimizer", "param") if getattr(self, what) != "none")
        if not places or not allowed:
            return allowed
        on_cpus = self.optimizer == "none" or setup.optimizer in ON_CPUS
        return on_cpus and not room.on_cpu and ("nvme" not in places or bool(room.nvme))

    def of(self, setup: Setup, overlap: bool | None = None) -> Setup:
        """Return a setup with this choice. `overlap`: the Plan's overlap_comm, if it is set."""
        return setup._replace(
            stage=self.stage,
            optimizer_offload=self.optimizer,
            param_offload=self.param,
            overlap=self.stage == 3 if overlap is None else overlap,
            optimizer="adamw" if self.optimizer != "none" and setup.optimizer == "torch_adamw" else setup.optimizer,
        )


CHOICES: tuple[Choice, ...] = (
    *(Choice(stage) for stage in range(4)),
    Choice(2, "cpu"),
    Choice(3, "cpu"),
    Choice(3, "cpu", "cpu"),
    Choice(3, "nvme"),
    Choice(3, "nvme", "nvme"),
)
"""From the simplest to the largest."""


def table(  # noqa: PLR0913 - all but the first four are named
    plan: Plan,
    facts: ModelFacts,
    machine: Machine,
    pool: Mapping[str, int] | None = None,
    *,
    gpu_memory: int | None = None,
    measured: Mapping[str, Any] | None = None,
    choices: Iterable[Choice] = CHOICES,
) -> dict[Choice, Forecast]:
    """Return a forecast for each possible choice, with all other settings of the Plan; empty if there is none."""
    room = capacity_of(plan, machine, pool, gpu_memory)
    models, reported = models_of(plan, facts, room, machine)
    rates = rates_for(models, room, machine, measured)
    if len(models) != 1 or facts.problem:
        return {}
    one, overlap = models[0], plan.get("deepspeed.zero_optimization.overlap_comm")
    overlaps = overlap if isinstance(overlap, bool) else None
    return {
        choice: assembled([replace(one, setup=choice.of(one.setup, overlaps))], room, rates, reported)
        for choice in dict.fromkeys(choices)
        if choice.possible(one.setup, room)
    }
