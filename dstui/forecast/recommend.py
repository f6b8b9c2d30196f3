"""Recommend Plans: the candidates that fit as a ranked table with patches, or what would make one fit.

The model, the precision, the sequence, the samples per step, the ranks and the optimizer are fixed. `search` varies the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.forecast.capacity import Capacity, capacity_of
from dstui.forecast.choices import ON_CPUS, Choice
from dstui.forecast.forecast import Forecast, assembled, batch_of, rates_for
from dstui.forecast.memory import BUILD, needs
from dstui.forecast.model import ModelFacts, counts
from dstui.forecast.modelled import Facts, Modelled, models_of
from dstui.forecast.need import Verdict, gpu_need, host_need
from dstui.forecast.patch import Patch, patch_of
from dstui.forecast.plan_search import BUCKETS, LIKE, PREFETCH, REUSE, SUB_GROUPS, Candidate, search
from dstui.forecast.rates import Rates
from dstui.forecast.setup import Setup
from dstui.forecast.speed import Speed
from dstui.forecast.states import states
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.model import Lora, Model

ROWS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlan:
    """One Plan of the table. Bytes and headroom are those of the scarcest resource."""

    setup: Setup
    verdict: Verdict
    gpu_bytes: int
    headroom: float
    host_bytes: int | None
    """Bytes of a node's RAM."""
    host_headroom: float | None
    nvme_bytes: int | None
    tight: str
    """The resource with the least left: gpu, host or nvme."""
    speed: Speed | None
    why: str
    patch: Patch
    best_at: tuple[str, ...] = ()
    """The strengths of this row among those that surely fit: fastest, most headroom, simplest."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui forecast --json` documents."""
        tokens = self.speed and self.speed.tokens
        return {
            "verdict": self.verdict,
            "gpu_bytes": self.gpu_bytes,
            "headroom": round(self.headroom, 4),
            "cpu_bytes": self.host_bytes,
            "nvme_bytes": self.nvme_bytes,
            "tight": self.tight,
            "best_at": list(self.best_at),
            "tokens_per_second": tokens,
            "why": self.why,
            "patch": list(self.patch),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlans:
    """The ranked Plans that fit. If none does, `ways` has sentences about the nearest ones."""

    rows: tuple[RankedPlan, ...] = ()
    candidates: int = 0
    tried: Mapping[str, int] = field(default_factory=dict)
    """The number of tried values of each dimension with several."""
    cheapest: str = ""
    """The cheapest sufficient hardware of this kind, if less than the present one is enough."""
    ordered_by: str = "speed"
    """The order of the rows: speed, or simplicity if the speed is unknown."""
    ways: tuple[str, ...] = ()
    problem: str = ""

    @property
    def order(self) -> str:
        """The order of the rows, in words."""
        return ORDERS[self.ordered_by]

    @property
    def second(self) -> str:
        """The reason that the second row is not the first; empty if there is none."""
        return _why_second(*self.rows[:2]) if len(self.rows) > 1 else ""


NOT_SEARCHED = "not searched: tensor and pipeline parallelism, LoRA, other lengths; not counted: loading of data, evaluation, saving"


ORDERS = {
    "speed": "the fastest first; of those within 5 %, what leaves a tenth of the memory, then the simplest",
    "simplicity": "the simplest first, then the least memory, since without a machine the speed is unknown",
}


def recommend(  # noqa: PLR0913 - all but the first four are named
    plan: Plan,
    facts: Facts,
    machine: Machine,
    pool: Mapping[str, int] | None = None,
    *,
    gpu_memory: int | None = None,
    measured: Mapping[str, Any] | None = None,
) -> RankedPlans:
    """Return the ranked Plans for a Plan with one model on a Machine. The arguments are those of `forecast`."""
    if not isinstance(facts, ModelFacts):
        return RankedPlans(problem="this Plan has several models: a search over all of them is not supported yet")
    room = capacity_of(plan, machine, pool, gpu_memory)
    models, _reported = models_of(plan, facts, room, machine)
    rates = rates_for(models, room, machine, measured)
    if facts.problem or not models:
        return RankedPlans(problem=facts.problem or "the Plan names no model: give model.source or model.params")
    if room.gpu is None and not (room.on_cpu and room.host):
        return RankedPlans(problem="there is no GPU memory to compare with: give --machine FILE or --gpu-memory 80GB")
    one, smaller = models[0], room.shrunk(rates.correction.memory.scale)
    found = search(plan, one, smaller, rates)
    rows = best_at([_row(plan, one, c, room, rates) for c in _ranked(found.best)])
    return RankedPlans(
        rows=rows,
        candidates=found.candidates,
        tried=found.tried,
        cheapest=_cheapest(one, smaller) if rows else "",
        ordered_by="speed" if rates.flops else "simplicity",
        ways=() if rows else tuple(ways_out(one, smaller)),
    )


def best_at(rows: Sequence[RankedPlan]) -> tuple[RankedPlan, ...]:
    """Return the rows with `best_at` set, considering those that surely fit."""
    sure = [row for row in rows if row.verdict == "fits"]
    if len(sure) < 2:
        return tuple(rows)
    fastest = max(sure, key=lambda row: row.speed.tokens if row.speed else 0.0)
    best = {
        **({"fastest": fastest} if fastest.speed else {}),
        "most headroom": max(sure, key=lambda row: row.headroom),
        "simplest": min(sure, key=lambda row: _complexity(row.setup)),
    }
    return tuple(replace(row, best_at=tuple(name for name, one in best.items() if one is row)) for row in rows)


def _why_second(first: RankedPlan, second: RankedPlan) -> str:
    """Say what the second row costs, and what it saves."""
    share = second.speed.tokens / first.speed.tokens - 1 if first.speed and second.speed and first.speed.tokens else 0.0
    costs = [f"{-share:.0%} slower"] if share < -LIKE else []
    if first.verdict == "fits" != second.verdict:
        costs.append("it may not fit")
    if not costs:
        simpler = _complexity(first.setup) < _complexity(second.setup)
        as_fast = f"{share:.0%} faster, which is within the forecast's error" if share > LIKE / 5 else "as fast"
        costs.append(f"{as_fast}, but {'less simple' if simpler else 'with less room'}")
    saved = (first.gpu_bytes - second.gpu_bytes) / 2**30
    return " and ".join(costs) + (f"; it needs {saved:.1f} GB less" if saved >= 1 else "")


def _complexity(s: Setup) -> tuple[int, ...]:
    """Return a sort key of complexity: smaller is simpler."""
    places = 2 * (s.optimizer_offload != "none") + 2 * (s.param_offload != "none") + (s.optimizer_offload == "nvme")
    return places, s.quantized_weights + s.quantized_gradients + (s.secondary > 1) + (s.sequence_parallel > 1), s.stage, s.checkpointing


def _cheapest(one: Modelled, room: Capacity) -> str:
    """Return a sentence about how few of these GPUs would be enough, if half of them or fewer are."""
    least, frugal = "", frugal_setup(one)
    ranks = room.ranks
    while ranks % 2 == 0:
        ranks //= 2
        nodes = max(room.nodes * ranks // room.ranks, 1)
        if one.setup.tensor_parallel * one.setup.sequence_parallel > ranks:
            break
        there = replace(room, ranks=ranks, nodes=nodes)
        if not enough(one, frugal._replace(ranks=ranks, nodes=nodes), there, surely=True):
            break
        least = f"{f'{ranks} of these GPUs are' if ranks > 1 else 'one of these GPUs is'} enough, with {_with(one)}"
    return least


def _ranked(found: Sequence[Candidate]) -> list[Candidate]:
    """Return those that surely fit, fastest first and the simplest of equally fast ones, with each stage and place once.

    The one with the most headroom is included.
    """
    fastest = max((c.tokens for c in found), default=0.0)

    def order(c: Candidate) -> tuple[bool, float, bool, int, float]:
        slower = int(math.log(fastest / c.tokens) / LIKE) if c.tokens else 0
        return not c.sure, slower, not c.roomy, c.simplicity, c.peak

    ways: dict[Any, Candidate] = {}
    for c in sorted(found, key=order):
        ways.setdefault((c.zero.stage, c.zero.optimizer_offload, c.zero.param_offload, c.batch.checkpointing), c)
    ranked = list(ways.values())
    shown = ranked[:ROWS]
    roomiest = min((c for c in found if c.sure), key=lambda c: c.peak, default=None)
    return shown if roomiest is None or roomiest in shown else sorted([*shown[: ROWS - 1], roomiest], key=order)


def _row(plan: Plan, one: Modelled, c: Candidate, room: Capacity, rates: Rates) -> RankedPlan:
    setup = c.setup
    found = forecast_of(one, setup, room, rates)
    need = found.host if room.on_cpu else found.gpu
    return RankedPlan(
        setup=setup,
        verdict=found.verdict,
        gpu_bytes=need.bytes or 0,
        headroom=need.headroom or 0.0,
        host_bytes=found.host.bytes,
        host_headroom=found.host.headroom,
        nvme_bytes=found.nvme.bytes,
        tight=found.bound,
        speed=found.speed,
        why=_why(setup, found),
        patch=patch_of(plan, setup, one.setup),
    )


def forecast_of(one: Modelled, setup: Setup, room: Capacity, rates: Rates) -> Forecast:
    """Return the forecast of one model under another setup."""
    return assembled([replace(one, setup=setup)], room, rates, ())


def _why(setup: Setup, found: Forecast) -> str:
    """Describe the Plan in a few words, with its bottleneck."""
    return way_of(setup) + (f"; bound by {found.speed.bound_by}" if found.speed else "")


KEPT = {
    "full": "activations recomputed",
    "selective": "what is cheap of the activations recomputed",
    "attention": "only the attention's matrix recomputed",
}


def way_of(setup: Setup) -> str:
    """Describe a setup in a few words."""
    parts = [f"ZeRO-{setup.stage}" if setup.stage else "no ZeRO"]
    where = {"cpu": "in RAM", "nvme": "on NVMe"}
    if setup.optimizer_offload != "none":
        both = setup.param_offload == setup.optimizer_offload
        parts.append(f"{'weights and optimizer' if both else 'optimizer'} {where[setup.optimizer_offload]}")
    parts.append(f"micro-batch {setup.micro_batch} x {setup.accumulation}")
    parts.append(KEPT[setup.recompute] if setup.checkpointing else "activations kept")
    if setup.secondary > 1:
        parts.append(f"a second copy of the weights within {setup.secondary} GPUs")
    quantized = [name for name, on in (("weights", setup.quantized_weights), ("gradients", setup.quantized_gradients)) if on]
    if quantized:
        parts.append(f"{' and '.join(quantized)} quantized for the network")
    if setup.super_offload:
        parts.append("SuperOffload")
    if setup.sequence_parallel > 1:
        parts.append(f"sequences over {setup.sequence_parallel} ranks")
    return ", ".join(parts)


def frugal_setup(one: Modelled) -> Setup:
    """Return stage 3 with everything as small as possible."""
    small: dict[str, Any] = {
        "reduce_bucket": BUCKETS[-1],
        "sub_group": SUB_GROUPS[-1],
        "reuse_distance": REUSE[-1],
        "prefetch_bucket": PREFETCH[-1],
    }
    here: dict[str, Any] = {"optimizer_offload": "none", "param_offload": "none", "secondary": 1}
    return one.setup._replace(micro_batch=1, checkpointing=True, recompute="full", stage=3, overlap=True, **small, **here)


LOSS = "a fused loss (use_liger_kernel), which never holds the logits whole ({:.0f} GB now), with {}"


def _with(one: Modelled, stage: str = "ZeRO-3", *, in_ram: bool = False) -> str:
    """Name what the sentences about ways out assume. Recomputation is named only where the Plan does not have it already."""
    setup = one.setup
    full = setup.checkpointing and setup.recompute == "full"
    again = [] if full else ["activation checkpointing" + (" of whole layers" if setup.checkpointing else "")]
    ram = ["everything in RAM"] if in_ram else []
    *some, last = [stage, *ram, *again]
    return f"{', '.join(some)} and {last}" if some else last


def ways_out(one: Modelled, room: Capacity) -> Iterator[str]:
    """Yield what would make it fit: more GPUs, a shorter sequence, LoRA, more RAM; each only if it is enough."""
    frugal = frugal_setup(one)
    loading = forecast_of(one, frugal, room, Rates())
    if loading.host.verdict == "too big" and loading.host.peak == BUILD:
        spared = forecast_of(one, frugal._replace(built_partitioned=True), room, Rates())
        if spared.verdict in ("fits", "tight"):
            whole = f"every rank loads it whole now: {(loading.host.bytes or 0) / 2**30:.0f} GB of RAM"
            yield f"the model built under deepspeed.zero.Init: {_with(one)} ({whole})"
    least = Choice(3, "cpu", "cpu").of(frugal) if frugal.optimizer in ON_CPUS else frugal
    places = {"": frugal, "in RAM": least}
    where = next((words for words, setup in places.items() if _needs_fused_loss(one, setup, room)), None)
    if where is not None:
        logits = max(need.parts.get("logits_and_loss", 0) for need in (loading.gpu, loading.host))
        yield LOSS.format(logits / 2**30, _with(one, in_ram=bool(where)))
    per_node = room.ranks_per_node
    for nodes in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128):
        ranks = room.ranks * nodes
        more = frugal._replace(ranks=ranks, nodes=max(room.nodes * nodes if per_node >= 8 or room.nodes > 1 else 1, 1))
        if enough(one, more, room):
            yield f"{ranks} of these GPUs instead of {room.ranks}, with {_with(one)}"
            break
    short = least.sequence // 2
    while short >= 128 and not enough(one, least._replace(sequence=short), room):
        short //= 2
    if short >= 128:
        yield f"sequences of {short} tokens instead of {least.sequence}, with {_with(one, in_ram=True)}"
    found = forecast_of(one, least, room, Rates())
    if found.gpu.verdict in ("fits", "tight") and found.host.verdict == "too big" and found.host.bytes:
        yield f"{found.host.bytes / 2**30:.0f} GB of RAM for ZeRO-3 with everything in RAM (here {(room.host or 0) / 2**30:.0f} GB)"
    model = one.model or Model()
    if model.lora is None:
        small = replace(one, model=replace(model, lora=Lora(r=16)))
        for setup, name in ((frugal._replace(stage=2), "ZeRO-2"), (frugal, "ZeRO-3")):
            if enough(small, setup, room):
                yield f"LoRA (r: 16) with {_with(one, name)}"
                return
        if enough(replace(small, model=replace(model, lora=Lora(r=16), quantization="nf4")), frugal._replace(stage=2), room):
            yield f"LoRA (r: 16) over weights in 4 bits (model.quantization: nf4) with {_with(one, 'ZeRO-2')}"


def _needs_fused_loss(one: Modelled, setup: Setup, room: Capacity) -> bool:
    """Return whether a model fits with a fused loss, and only with it."""
    return not enough(one, setup, room) and enough(one, setup._replace(fused_loss=True), room)


def enough(one: Modelled, setup: Setup, room: Capacity, *, surely: bool = False) -> bool:
    """Return whether a model fits under another setup, or with the same memory on more GPUs."""
    n = counts(one.facts, one.model, persistence=setup.persistence)
    assert n is not None
    mine = replace(one, setup=setup)
    found = needs(setup, n, states(setup, n), batch_of(mine, n))
    there = replace(room, ranks=setup.ranks, nodes=setup.nodes)
    gpu, host = gpu_need(found.gpu, setup, there), host_need(found, setup, there)
    disk = sum(found.nvme.values()) * there.ranks_per_node
    held = sum(found.host.parts.values()) * there.ranks_per_node
    good = ("fits",) if surely else ("fits", "tight")
    return gpu.verdict in good and (not held or room.host is None or host.verdict != "too big") and (not disk or disk <= (room.nvme or 0))
