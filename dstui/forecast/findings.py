"""Findings about what does not fit, before the launch, with the nearest Plan that fits as the fix.

A forecast may be wrong, so none of these findings stops a launch. The faces show them together with those of `dstui.check`, which knows no
model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dstui.check.rules.cluster import BINDS
from dstui.forecast.capacity import Capacity, capacity_of
from dstui.forecast.choices import CHOICES
from dstui.forecast.corrections import correction_of
from dstui.forecast.forecast import Forecast, forecast
from dstui.forecast.memory import BUILD
from dstui.forecast.model import counts
from dstui.forecast.modelled import Facts, models_of
from dstui.forecast.need import Need
from dstui.forecast.patch import patch_of
from dstui.forecast.plan_search import batches_of, space_of
from dstui.forecast.recommend import way_of, ways_out
from dstui.forecast.setup import Setup
from dstui.forecast.states import states
from dstui.machine.report import format_size
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.catalogue import ZERO_SECTION
from dstui.plan.finding import Finding, Fix

ZERO_PATH = f"deepspeed.{ZERO_SECTION}"
STAGE = f"{ZERO_PATH}.stage"


class Place(NamedTuple):
    """A resource that can be too small: the code of its finding, its name, and the related key."""

    code: str
    name: str
    path: str


PLACES_OF_FORECAST: Mapping[str, Place] = {
    "gpu": Place("FC001", "each GPU", ZERO_PATH),
    "host": Place("FC002", "the RAM of a node", f"{ZERO_PATH}.offload_optimizer"),
    "nvme": Place("FC003", "the NVMe of a node", f"{ZERO_PATH}.offload_optimizer.nvme_path"),
}


def findings_of(  # noqa: PLR0913 - all but the first five are named
    plan: Plan,
    facts: Facts,
    machine: Machine,
    pool: Mapping[str, int] | None = None,
    found: Forecast | None = None,
    *,
    measured: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Return findings about resources that do not or only just suffice. `found`: the forecast, if it exists already."""
    reported = found or forecast(plan, facts, machine, pool, measured=measured)
    places = {"gpu": reported.gpu, "host": reported.host, "nvme": reported.nvme}
    fix = (
        nearest_fix(plan, facts, machine, pool, measured)
        if any(need.bytes and need.verdict == "too big" for need in places.values())
        else None
    )
    found_here = [finding for name, need in places.items() for finding in _finding(plan, PLACES_OF_FORECAST[name], need, fix)]
    return [*found_here, *_unbound(plan, reported), *_faster_beside_others(plan, facts, machine, pool, measured)]


def _unbound(plan: Plan, found: Forecast) -> Iterator[Finding]:
    """Yield advice if the CPUs' optimizer runs on cores that the ranks share."""
    setup = found.setup
    launcher = plan.cluster.launcher
    if setup is None or setup.optimizer_offload != "cpu" or setup.cores_bound or found.gpu.bytes is None:
        return
    binds = launcher in (None, "local", *BINDS)
    value = "deepspeed" if binds else "numactl"
    fix = Fix(f"bind the ranks with {value}", ({"op": "add", "path": "/cluster", "value": {"cpu_binding": value}},))
    if isinstance(plan.data.get("cluster"), Mapping):
        fix = Fix(fix.text, ({"op": "add", "path": "/cluster/cpu_binding", "value": value},))
    message = "the optimizer runs on CPU cores that are not bound to the ranks (--bind_cores_to_rank)"
    measured = "2.4 s instead of 3.1 s a step for a model of 3B on 2 A100, in DeepSpeed's pull request 7474"
    why = f"ranks that share cores slow each other down: bound, it took {measured} (it needs numactl on each host)"
    path = next((p for p in (f"{ZERO_PATH}.offload_optimizer", ZERO_PATH) if plan.get(p) is not None), "deepspeed")
    yield Finding("FC005", "info", path, message, why, line=plan.line_of(path), fix=fix)


def _faster_beside_others(
    plan: Plan, facts: Facts, machine: Machine, pool: Mapping[str, int] | None, measured: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Yield a finding for a model trained at stage 3 together with others that would fit at stage 2."""
    trained = [name for name, one in plan.models.items() if one.role == "train" and plan.get(f"models.{name}.{STAGE}") == 3]
    for name in trained if len(plan.models) > 1 else ():
        path = f"models.{name}.{STAGE}"
        if forecast(plan.unfocused.set(path, 2), facts, machine, pool, measured=measured).verdict == "fits":
            fix = Fix("use stage 2", ({"op": "replace", "path": f"/{path.replace('.', '/')}", "value": 2},))
            why = "at stage 3 its weights are gathered twice in each step, beside the traffic of the other models"
            message = f"{name} fits at ZeRO-2 beside the other models, where it is faster than at ZeRO-3"
            yield Finding("FC004", "info", path, message, why, line=plan.line_of(path), fix=fix)


def _finding(plan: Plan, place: Place, need: Need, fix: Fix | None) -> Iterator[Finding]:
    if need.bytes is None or need.capacity is None or need.verdict not in ("tight", "too big"):
        return
    path = next((p for p in (place.path, ZERO_PATH, "deepspeed") if plan.get(p) is not None), "deepspeed")
    largest = sorted(need.parts.items(), key=lambda item: -item[1])[:2]
    why = f"at the peak ({need.peak}): " + ", ".join(f"{part.replace('_', ' ')} {format_size(amount)}" for part, amount in largest)
    about = f"about {format_size(need.bytes)} of {place.name}, where {format_size(need.capacity)} are free"
    if need.peak == BUILD:
        why += "; every rank loads the whole model: deepspeed.zero.Init (stage 3), or one rank after the other, needs less"
    if need.verdict == "tight":
        message = f"this Plan needs {about}: it fits only if little memory is wasted (up to {format_size(need.range[1])})"
        yield Finding(place.code, "info", path, message, why, line=plan.line_of(path))
        return
    message = f"this Plan needs {about}: it {'probably ' * need.may_fit}does not fit"
    yield Finding(place.code, "warning", path, message, why, line=plan.line_of(path), fix=fix)


def nearest_fix(
    plan: Plan, facts: Facts, machine: Machine, pool: Mapping[str, int] | None = None, measured: Mapping[str, Any] | None = None
) -> Fix | None:
    """Return a fix with the smallest change that fits: checkpointing and a smaller micro-batch, then a higher stage, then offload."""
    room = capacity_of(plan, machine, pool)
    models, _reported = models_of(plan, facts, room, machine)
    room = room.shrunk(correction_of(measured or {}).memory.scale)
    if len(models) != 1 or models[0].facts.problem or room.on_cpu:
        return None
    one = models[0]
    n = counts(one.facts, one.model, persistence=one.setup.persistence, split_experts=one.setup.split_experts)
    assert n is not None
    batches = [batch for batch in batches_of(plan, one, n) if _no_less_frugal(batch.setup, one.setup)]
    best: tuple[float, Setup] | None = None
    for zero, changed in _zeros(one.setup, room):
        for accumulated in {batch.setup.accumulation > 1 for batch in batches}:
            setup = zero._replace(accumulation=1 + accumulated)
            s = states(setup, n)
            space = space_of(setup, n, s, room)
            for batch in batches if space else ():
                mine = batch.setup
                distance = (
                    changed + (mine.checkpointing != one.setup.checkpointing) + 0.6 * math.log2(one.setup.micro_batch / mine.micro_batch)
                )
                if (mine.accumulation > 1) != accumulated or (best and distance >= best[0]) or space is None:
                    continue
                if space.peak(batch.activations) * space.waste[mine.checkpointing] <= space.room:
                    best = distance, mine._replace(**_zero_of(zero))
    if best:
        return Fix(f"{way_of(best[1])} would fit", patch_of(plan, best[1], one.setup))
    way = next(ways_out(one, room), None)
    return Fix(way) if way else None


def _no_less_frugal(batch: Setup, was: Setup) -> bool:
    return batch.micro_batch <= was.micro_batch and batch.checkpointing >= was.checkpointing


def _zeros(setup: Setup, room: Capacity) -> Iterator[tuple[Setup, float]]:
    """Yield stages and offloads starting from the Plan's own, with their distance: a higher stage is nearer than offload."""
    cost = {"none": 0.0, "cpu": 4.0, "nvme": 8.0}
    for choice in CHOICES:
        if choice.stage >= setup.stage and choice.possible(setup, room):
            dearer = max(cost[choice.optimizer] - cost[setup.optimizer_offload], 0) + cost[choice.param] / 2
            yield choice.of(setup), (choice.stage - setup.stage) * 1.5 + dearer


def _zero_of(setup: Setup) -> dict[str, Any]:
    return {name: getattr(setup, name) for name in ("stage", "optimizer_offload", "param_offload", "overlap", "optimizer")}
