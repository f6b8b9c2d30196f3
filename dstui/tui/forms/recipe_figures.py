"""What the recipes of the start screen cost on this machine: of the model that the script names, else for how large a model they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dstui.adopt.recipes import Recipe, billions

if TYPE_CHECKING:
    from dstui.forecast.forecast import Forecast
    from dstui.machine.snapshot import Machine


class _Weighed(NamedTuple):
    """What was weighed last: the screen is drawn often, the machine and the folder stay."""

    recipes: Sequence[Recipe] = ()
    machine: Machine | None = None
    found: tuple[Recipe, ...] = ()


_last = _Weighed()
ORDER = ("fits", "tight", "unknown", "too big")


def weighed(made: Sequence[Recipe], machine: Machine) -> tuple[Recipe, ...]:
    """The recipes with their figures: those that fit first, and of them the fastest."""
    global _last  # noqa: PLW0603 - a memory of one
    if _last.machine is not machine or _last.recipes != made:
        _last = _Weighed(made, machine, tuple(_of_model(made, machine) or _of_any(made, machine)))
    return _last.found


def _of_model(made: Sequence[Recipe], machine: Machine) -> list[Recipe]:
    """For the model that they name; empty where they name none."""
    from dstui.forecast.forecast import forecast
    from dstui.forecast.model import facts_of_config
    from dstui.forecast.presets import preset
    from dstui.plan import load
    from dstui.tui.forms.steps.figures import figure

    estimates: list[tuple[Recipe, Forecast]] = []
    for recipe in made:
        plan = load(recipe.text, "plan.yaml")
        known = preset(plan.model.source) if plan.model and plan.model.source else None
        if known is not None:
            estimates.append((recipe, forecast(plan, facts_of_config(known), machine)))
    estimates.sort(key=lambda pair: (ORDER.index(pair[1].verdict), -pair[1].speed.tokens if pair[1].speed else 0.0))
    return [replace(recipe, says=f"{figure(found)}{' tok/s' if found.fits and found.speed else ''}") for recipe, found in estimates]


def _of_any(made: Sequence[Recipe], machine: Machine) -> Iterator[Recipe]:
    """For how large a model they are; one that holds no larger one than those before it is no choice."""
    from dstui.forecast.largest import largest
    from dstui.plan import load

    before = 0.0
    for recipe in made:
        most = largest(load(recipe.text, "plan.yaml"), machine)
        if not most:
            yield recipe
        elif most > 1.05 * before:
            before = most
            yield replace(recipe, says=f"{recipe.speed}; to {billions(most)}")
