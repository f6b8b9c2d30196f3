"""Find the largest model that a Plan could train on a Machine."""

from __future__ import annotations

from dataclasses import replace

from dstui.forecast.capacity import capacity_of
from dstui.forecast.model import facts_of_params
from dstui.forecast.modelled import models_of
from dstui.forecast.recommend import enough
from dstui.machine.snapshot import Machine
from dstui.plan import Plan

MIN_PARAMS, MAX_PARAMS = 1e6, 1e13
STEPS = 22
"""Bisection steps, which leave less than a percent of the range."""


def largest(plan: Plan, machine: Machine) -> int:
    """Return the number of parameters that surely fit, for a LLaMA-like model with checkpointing; 0 if none do, or nothing is known."""
    room = capacity_of(plan, machine)
    low, high = MIN_PARAMS, MAX_PARAMS
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        facts = facts_of_params(middle)
        one = models_of(plan, facts, room, machine)[0][0]
        fits = enough(replace(one, facts=facts), one.setup._replace(checkpointing=True), room, surely=True)
        low, high = (middle, high) if fits else (low, middle)
    return int(low) if low > MIN_PARAMS else 0
