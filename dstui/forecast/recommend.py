"""Which plan is best: every candidate under the user's fixed choices, judged by memory and speed, and a ranked table with patches.

Fixed are the model, the precision, the sequence, the samples of a step, the ranks and the optimizer. Searched are ZeRO stage, offload,
micro-batch and accumulation, activation checkpointing, hpZ, and the sizes of buckets and sub-groups. What ZeRO costs and what the batch
costs are worked out apart and combined, which makes ten thousand candidates some tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from dstui.check.auto_values import AUTO
from dstui.forecast.activations import Activations
from dstui.forecast.capacity import Capacity, capacity_of
from dstui.forecast.choices import CHOICES, ON_CPUS, Choice
from dstui.forecast.forecast import Facts, Forecast, Modelled, Verdict, assembled, batch_of, idle_of, models_of, of_gpu, of_host, rates_for
from dstui.forecast.memory import CPU_PROCESS, FRAGMENTED, GPU_PROCESS, WASTED, Beside, around, beside, host_room, needs
from dstui.forecast.model import Counts, ModelFacts, counts
from dstui.forecast.patch import KEYS, Patch, patch_of
from dstui.forecast.rates import Rates
from dstui.forecast.setup import Setup
from dstui.forecast.speed import Speed, Traffic, Work, step_seconds, traffic, work
from dstui.forecast.states import States, states
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.model import Lora, Model

BUCKETS = (500_000_000, 200_000_000, 50_000_000)
SUB_GROUPS = (1_000_000_000, 100_000_000)
REUSE = (1_000_000_000, 100_000_000)
PREFETCH = (50_000_000, 5_000_000)
ROWS = 12
ROOMY = 0.9
LIKE = 0.05
"""Speeds that differ by less are alike, for the speed model is no better: the simpler plan, then the one with more headroom, is first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlan:
    """One plan of the table. Bytes and headroom are those of the place that is the tightest on a GPU."""

    setup: Setup
    verdict: Verdict
    gpu_bytes: int
    headroom: float
    speed: Speed | None
    why: str
    patch: Patch

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui forecast --json` documents."""
        tokens = self.speed and self.speed.tokens
        return {
            "verdict": self.verdict,
            "gpu_bytes": self.gpu_bytes,
            "headroom": round(self.headroom, 4),
            "tokens_per_second": tokens,
            "why": self.why,
            "patch": list(self.patch),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlans:
    """The ranked plans that fit. Where none does, `ways` says in sentences what would be the nearest."""

    rows: tuple[RankedPlan, ...] = ()
    candidates: int = 0
    ordered_by: str = "speed"
    """What the rows are ordered by: speed, or simplicity where no machine tells how fast it is."""
    ways: tuple[str, ...] = ()
    problem: str = ""

    @property
    def order(self) -> str:
        """The order of the rows, in words."""
        return ORDERS[self.ordered_by]


ORDERS = {
    "speed": "the fastest first; of those as fast, the simplest",
    "simplicity": "the simplest first, then the least memory: no machine is known, so neither is the speed",
}


class Candidate(NamedTuple):
    """What ZeRO does and what the batch is; made into one Setup only for what is shown."""

    zero: Setup
    batch: Setup
    peak: float
    """Bytes that torch gives out on a GPU."""
    tokens: float
    """Tokens of all ranks in a second; 0 where the speed is not known."""
    changes: int
    sure: bool
    """Whether it fits with all that the allocator may waste."""
    roomy: bool
    """Whether a good tenth is left, for what no forecast knows."""

    @property
    def setup(self) -> Setup:
        """The setup of the candidate."""
        b = self.batch
        return self.zero._replace(micro_batch=b.micro_batch, accumulation=b.accumulation, checkpointing=b.checkpointing)

    @property
    def simplicity(self) -> int:
        """The number of changes, weighted; less is simpler."""
        z = self.zero
        return CHOICES.index(Choice(z.stage, z.optimizer_offload, z.param_offload)) * 4 + 2 * self.batch.checkpointing + (z.secondary > 1)

    def better(self, other: Candidate) -> bool:
        """Return whether a candidate of the same kind fits more surely, is faster, or as fast with fewer changes or less memory."""
        if self.sure != other.sure:
            return self.sure
        if abs(self.tokens - other.tokens) > LIKE / 3 * max(self.tokens, other.tokens):
            return self.tokens > other.tokens
        return (self.changes, self.peak) < (other.changes, other.peak)


def recommend(  # noqa: PLR0913 - all but the first four are named
    plan: Plan,
    facts: Facts,
    machine: Machine,
    pool: Mapping[str, int] | None = None,
    *,
    gpu_memory: int | None = None,
    measured: Mapping[str, Any] | None = None,
) -> RankedPlans:
    """Return the ranked plans for a Plan with one model on a Machine. The arguments are those of `forecast`."""
    if not isinstance(facts, ModelFacts):
        return RankedPlans(problem="this Plan has several models: what is best for all of them together is not searched yet")
    room = capacity_of(plan, machine, pool, gpu_memory)
    models, _reported = models_of(plan, facts, room, machine)
    rates = rates_for(models, room, machine, measured)
    if facts.problem or not models:
        return RankedPlans(problem=facts.problem or "the Plan names no model: give model.source or model.params")
    if room.gpu is None and not (room.on_cpu and room.host):
        return RankedPlans(problem="there is no GPU memory to compare with: --machine FILE or --gpu-memory 80GB would tell")
    one, smaller = models[0], room.shrunk(rates.memory_scale)
    count, best = search(plan, one, smaller, rates)
    rows = tuple(_row(plan, one, c, room, rates) for c in _ranked(best))
    order = "speed" if rates.flops else "simplicity"
    return RankedPlans(rows=rows, candidates=count, ordered_by=order, ways=() if rows else tuple(ways_out(one, smaller)))


def search(plan: Plan, one: Modelled, room: Capacity, rates: Rates) -> tuple[int, list[Candidate]]:
    """Return the number of candidates, and the best of each kind that fits."""
    shape = one.facts.shape
    n = counts(one.facts, one.model, persistence=one.setup.persistence)
    assert shape is not None and n is not None
    idle = idle_of(one)
    costs: dict[bool, list[CostedBatch]] = {False: [], True: []}
    for batch in batches_of(plan, one, n):
        timed = batch._replace(work=work(batch.setup, shape, n, idle, rates)) if rates.flops else batch
        costs[batch.setup.accumulation > 1].append(timed)
    best: dict[Any, Candidate] = {}
    count = 0
    for zero in _zeros(plan, one.setup, room):
        moved = [traffic(zero._replace(checkpointing=c), shape, n, rates) for c in (False, True)] if rates.flops else []
        for accumulated in (accumulated for accumulated, batches in costs.items() if batches):
            setup = zero._replace(accumulation=1 + accumulated)
            s = states(setup, n)
            space = space_of(setup, n, s, room)
            count += len(costs[accumulated])
            if space is not None:
                _best_of(best, costs[accumulated], setup, space, moved, _changes(setup, one.setup))
    return count, list(best.values())


class CostedBatch(NamedTuple):
    """A batch with what it costs."""

    setup: Setup
    activations: Activations
    work: Work | None = None


def batches_of(plan: Plan, one: Modelled, n: Counts) -> Iterator[CostedBatch]:
    """Yield every batch that keeps the samples of a step, with and without checkpointing."""
    for micro, accumulation in _batches(plan, one.setup):
        for checkpointing in (False, True):
            setup = one.setup._replace(micro_batch=micro, accumulation=accumulation, checkpointing=checkpointing)
            yield CostedBatch(setup, batch_of(replace(one, setup=setup), n))


class Space(NamedTuple):
    """What ZeRO leaves on a GPU (of CPU ranks, in their RAM)."""

    fixed: float
    """The most of the moments that no batch touches."""
    resting: float
    """What rests."""
    room: float
    """Bytes that torch may give out."""
    waste: float
    """How much more than that its allocator may hold."""

    beside: Beside

    def peak(self, a: Activations) -> float:
        """Return the most that torch allocates with these activations."""
        return max(self.fixed, self.resting + self.beside.peak(a))


def space_of(setup: Setup, n: Counts, s: States, room: Capacity) -> Space | None:
    """Return the space for activations; None where RAM or disk are already too small."""
    host, resting = host_room(setup, n, s).peak, sum(s.gpu.values())
    fixed = max(s.initialize, resting + sum(s.step.values()))
    if room.on_cpu:
        return Space(fixed, resting, (room.host or 0) / room.ranks_per_node - sum(s.host.values()) - CPU_PROCESS, 1.1, beside(setup, n, s))
    too_much = room.host is not None and (host + GPU_PROCESS) * room.ranks_per_node > room.host
    if too_much or sum(s.nvme.values()) * room.ranks_per_node > (room.nvme or 0):
        return None
    wasted = 1 + WASTED[setup.stage]
    return Space(fixed, resting, ((room.gpu or 0) - around(setup)) / wasted, FRAGMENTED[setup.stage] / wasted, beside(setup, n, s))


def _best_of(  # noqa: PLR0913, PLR0917 - the inner loop of the search, apart so that it can be read
    best: dict[Any, Candidate],
    batches: Sequence[CostedBatch],
    setup: Setup,
    space: Space,
    moved: Sequence[Traffic],
    changes: int,
) -> None:
    """Keep the batches that fit with one configuration of ZeRO and beat the best of their kind."""
    kinds = [(setup.stage, setup.optimizer_offload, setup.param_offload, checkpointing, setup.secondary) for checkpointing in (False, True)]
    tokens_of_a_step = batches[0].setup.samples * setup.sequence
    for batch in batches:
        peak = space.peak(batch.activations)
        if peak > space.room:
            continue
        mine = batch.setup
        kind, tokens = kinds[mine.checkpointing], 0.0
        if batch.work:
            tokens = tokens_of_a_step / step_seconds(mine.accumulation, batch.work, moved[mine.checkpointing])
        known = best.get(kind)
        if known and known.sure and tokens < known.tokens * (1 - LIKE / 3):
            continue
        found = Candidate(setup, mine, peak, tokens, changes, peak * space.waste <= space.room, peak <= ROOMY * space.room)
        if known is None or found.better(known):
            best[kind] = found


def _changes(setup: Setup, was: Setup) -> int:
    """Count sizes of buckets and groups that differ from the Plan's."""
    return sum(bool(getattr(setup, field) != getattr(was, field)) for field in KEYS) + (setup.overlap != was.overlap)


def _batches(plan: Plan, setup: Setup) -> list[tuple[int, int]]:
    """Return micro-batch and accumulation pairs that keep the samples of a step; only the Plan's where script or Trainer set them."""
    given = [plan.deepspeed.get(key) for key in ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")]
    if AUTO in given or given[:2] == [None, None]:
        return [(setup.micro_batch, setup.accumulation)]
    samples = setup.micro_batch * setup.accumulation
    return [(m, samples // m) for m in range(1, min(samples, 4096) + 1) if samples % m == 0]


def _zeros(plan: Plan, setup: Setup, room: Capacity) -> Iterator[Setup]:
    """Yield the possible configurations of ZeRO."""
    buckets = sorted({setup.reduce_bucket, *BUCKETS}) if not _is_auto(plan) else [setup.reduce_bucket]
    secondary = (1, room.ranks_per_node) if room.nodes > 1 and room.ranks_per_node > 1 else (1,)
    for choice in (choice for choice in CHOICES if choice.possible(setup, room)):
        base = choice.of(setup)
        if choice.stage == 0:
            yield base._replace(overlap=False, secondary=1)
        elif choice.stage < 3:
            for bucket, overlap in product(buckets, (False, True)):
                yield base._replace(reduce_bucket=bucket, overlap=overlap, secondary=1)
        else:
            groups, reuse = sorted({setup.sub_group, *SUB_GROUPS}), sorted({setup.reuse_distance, *REUSE})
            for bucket, group, distance, prefetch, hpz in product(buckets, groups, reuse, PREFETCH, secondary):
                if hpz > 1 and choice.param != "none":
                    continue
                more: dict[str, Any] = {
                    "reduce_bucket": bucket,
                    "sub_group": group,
                    "reuse_distance": distance,
                    "prefetch_bucket": prefetch,
                    "secondary": hpz,
                }
                yield base._replace(overlap=True, **more)


def _is_auto(plan: Plan) -> bool:
    zero = plan.deepspeed.get("zero_optimization")
    return isinstance(zero, Mapping) and zero.get("reduce_bucket_size") == AUTO


def _ranked(rows: list[Candidate]) -> list[Candidate]:
    """Sort by certain fit, then speed, then simplicity."""
    fastest = max((c.tokens for c in rows), default=0.0)

    def order(c: Candidate) -> tuple[bool, float, bool, int, float]:
        slower = int((1 - c.tokens / fastest) / LIKE) if fastest else 0
        return not c.sure, slower, not c.roomy, c.simplicity, c.peak

    return sorted(rows, key=order)[:ROWS]


def _row(plan: Plan, one: Modelled, c: Candidate, room: Capacity, rates: Rates) -> RankedPlan:
    setup = c.setup
    found = forecast_of(one, setup, room, rates)
    need = found.host if room.on_cpu else found.gpu
    return RankedPlan(
        setup=setup,
        verdict=found.verdict,
        gpu_bytes=need.bytes or 0,
        headroom=need.headroom or 0.0,
        speed=found.speed,
        why=_why(setup, found),
        patch=patch_of(plan, setup, one.setup),
    )


def forecast_of(one: Modelled, setup: Setup, room: Capacity, rates: Rates) -> Forecast:
    """Return the forecast of one model under another setup."""
    return assembled([replace(one, setup=setup)], room, rates, ())


def _why(setup: Setup, found: Forecast) -> str:
    """Describe a plan and what bounds it in a few words."""
    return way_of(setup) + (f"; bound by {found.speed.bound_by}" if found.speed else "")


def way_of(setup: Setup) -> str:
    """Describe a setup in a few words."""
    parts = [f"ZeRO-{setup.stage}" if setup.stage else "no ZeRO"]
    where = {"cpu": "in RAM", "nvme": "on NVMe"}
    if setup.optimizer_offload != "none":
        both = setup.param_offload == setup.optimizer_offload
        parts.append(f"{'weights and optimizer' if both else 'optimizer'} {where[setup.optimizer_offload]}")
    parts.append(f"micro-batch {setup.micro_batch} x {setup.accumulation}")
    parts.append("activations recomputed" if setup.checkpointing else "activations kept")
    if setup.secondary > 1:
        parts.append(f"a second copy of the weights within {setup.secondary} GPUs")
    return ", ".join(parts)


def ways_out(one: Modelled, room: Capacity) -> Iterator[str]:
    """Yield what would make it fit: more GPUs, a shorter sequence, LoRA, more RAM; each only where it is enough."""
    frugal = one.setup._replace(
        micro_batch=1, checkpointing=True, stage=3, overlap=True, reduce_bucket=BUCKETS[-1], sub_group=SUB_GROUPS[-1]
    )
    frugal = frugal._replace(reuse_distance=REUSE[-1], prefetch_bucket=PREFETCH[-1])
    least = Choice(3, "cpu", "cpu").of(frugal) if frugal.optimizer in ON_CPUS else frugal
    per_node = room.ranks_per_node
    for nodes in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128):
        ranks = room.ranks * nodes
        more = frugal._replace(ranks=ranks, nodes=max(room.nodes * nodes if per_node >= 8 or room.nodes > 1 else 1, 1))
        if enough(one, more, room):
            yield f"{ranks} of these GPUs instead of {room.ranks}, with ZeRO-3 and activation checkpointing"
            break
    short = least.sequence // 2
    while short >= 128 and not enough(one, least._replace(sequence=short), room):
        short //= 2
    if short >= 128:
        yield f"sequences of {short} tokens instead of {least.sequence}, with ZeRO-3, everything in RAM and activation checkpointing"
    found = forecast_of(one, least, room, Rates())
    if found.gpu.verdict in ("fits", "tight") and found.host.verdict == "too big" and found.host.bytes:
        yield f"{found.host.bytes / 2**30:.0f} GiB of RAM for ZeRO-3 with everything in RAM (here are {(room.host or 0) / 2**30:.0f} GiB)"
    model = one.model or Model()
    if model.lora is None:
        small = replace(one, model=replace(model, lora=Lora(r=16)))
        for setup, name in ((frugal._replace(stage=2), "ZeRO-2"), (frugal, "ZeRO-3")):
            if enough(small, setup, room):
                yield f"LoRA (r: 16) with {name} and activation checkpointing"
                return
        if enough(replace(small, model=replace(model, lora=Lora(r=16), quantization="nf4")), frugal._replace(stage=2), room):
            yield "LoRA (r: 16) over weights in 4 bits (model.quantization: nf4) with ZeRO-2 and activation checkpointing"


def enough(one: Modelled, setup: Setup, room: Capacity, *, surely: bool = False) -> bool:
    """Return whether a model fits under another setup, also with as much room on more GPUs."""
    n = counts(one.facts, one.model, persistence=setup.persistence)
    assert n is not None
    mine = replace(one, setup=setup)
    found = needs(setup, n, states(setup, n), batch_of(mine, n))
    there = replace(room, ranks=setup.ranks, nodes=setup.nodes)
    gpu, host = of_gpu(found.gpu, setup, there), of_host(found, setup, there)
    disk = sum(found.nvme.values()) * there.ranks_per_node
    held = sum(found.host.parts.values()) * there.ranks_per_node
    good = ("fits",) if surely else ("fits", "tight")
    return gpu.verdict in good and (not held or room.host is None or host.verdict != "too big") and (not disk or disk <= (room.nvme or 0))
