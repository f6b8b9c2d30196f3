"""The search: every ZeRO setting with every batch, rated by memory and speed.

The costs of ZeRO settings and of batches are computed once each. numpy combines each of one with each of the other, so that tens of
thousands of candidates take some tens of milliseconds. numpy is imported by the first search, not at start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from dstui.base.dataclass import dataclass
from dstui.check.auto_values import AUTO
from dstui.forecast.activations import Activations
from dstui.forecast.capacity import Capacity
from dstui.forecast.choices import CHOICES, Choice
from dstui.forecast.forecast import batch_of, idle_of
from dstui.forecast.memory import LAST, WASTED, PassMemory, around, beside, fragmented, host_room, process_bytes, released_bytes
from dstui.forecast.model import Counts, counts
from dstui.forecast.modelled import Modelled
from dstui.forecast.patch import KEYS
from dstui.forecast.rates import Rates
from dstui.forecast.setup import Setup
from dstui.forecast.speed import Traffic, Work, traffic, work
from dstui.forecast.states import States, states
from dstui.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUCKETS = (500_000_000, 200_000_000, 50_000_000)
SUB_GROUPS = (1_000_000_000, 100_000_000)
REUSE = (1_000_000_000, 100_000_000)
PREFETCH = (50_000_000, 5_000_000)
LONG_SEQUENCE = 32_768
"""From this length on, sequences are split over ranks (Ulysses)."""
FAST_LINK = 100e9
"""Bytes per second between GPU and RAM from which on SuperOffload is worthwhile (Grace Hopper)."""
ROOMY = 0.9
LIKE = 0.05
"""Speeds that differ by less count as equal, since the model is no more precise: the simpler Plan, then the one with more headroom, comes
first."""
MAX_MICRO = 4096


class CostedBatch(NamedTuple):
    """A batch with its costs."""

    setup: Setup
    activations: Activations
    work: Work | None = None


class Space(NamedTuple):
    """The memory that ZeRO leaves on a GPU (for CPU ranks: in their RAM)."""

    fixed: float
    """The peak of the moments that do not depend on the batch."""
    resting: float
    """Persistent bytes."""
    room: float
    """Bytes that torch may allocate."""
    waste: tuple[float, float]
    """Factors for the allocator's overhead: with kept activations, and with recomputed ones."""
    host: float
    """Bytes of a rank's RAM that are left for activations."""
    beside: PassMemory
    released: float = 0.0
    """Bytes that gathered weights take on with samples of different lengths, if there is room."""

    def peak(self, a: Activations) -> float:
        """Return the peak of torch's allocations with these activations."""
        return max(self.fixed, self.resting + self.beside.peak(a))


class Candidate(NamedTuple):
    """A ZeRO setting and a batch; converted to a Setup only for display."""

    zero: Setup
    batch: Setup
    peak: float
    """Bytes that torch allocates on a GPU."""
    tokens: float
    """Tokens per second of all ranks; 0 if the speed is unknown."""
    changes: int
    sure: bool
    """True if it fits even with the allocator's overhead."""
    roomy: bool
    """True if more than a tenth is left for unforeseen needs."""

    @property
    def setup(self) -> Setup:
        """The Setup of both."""
        b = self.batch
        return self.zero._replace(micro_batch=b.micro_batch, accumulation=b.accumulation, checkpointing=b.checkpointing)

    @property
    def simplicity(self) -> int:
        """The complexity; smaller is simpler."""
        z = self.zero
        quantized = 2 * z.quantized_weights + 2 * z.quantized_gradients
        place = CHOICES.index(Choice(z.stage, z.optimizer_offload, z.param_offload))
        return place * 8 + 4 * self.batch.checkpointing + (z.secondary > 1) + quantized + z.super_offload + (z.sequence_parallel > 1)


@dataclass(frozen=True, slots=True)
class Found:
    """The number of candidates, in total and by varied setting, and the best of each kind among those that fit."""

    candidates: int
    tried: Mapping[str, int]
    best: Sequence[Candidate]


def search(plan: Plan, one: Modelled, room: Capacity, rates: Rates) -> Found:
    """Return the best of each kind among all candidates with the same samples per step."""
    n = counts(one.facts, one.model, persistence=one.setup.persistence, split_experts=one.setup.split_experts)
    assert n is not None
    best: list[Candidate] = []
    count, zeros_tried, batches_tried = 0, set[Setup](), set[tuple[int, bool]]()
    for degree in sequence_degrees(plan, one, room):
        mine = replace(one, setup=split_over(one.setup, degree))
        costed = [_timed(batch, mine, n, rates) for batch in batches_of(plan, mine, n)]
        ways = list(zeros(plan, mine.setup, room, rates))
        zeros_tried |= set(ways)
        batches_tried |= {(batch.setup.micro_batch, batch.setup.checkpointing) for batch in costed}
        for accumulated in (False, True):
            batches = [batch for batch in costed if (batch.setup.accumulation > 1) == accumulated]
            if batches and ways:
                count += len(batches) * len(ways)
                best += _best([way._replace(accumulation=1 + accumulated) for way in ways], batches, mine, n, room, rates)
    return Found(count, _tried(zeros_tried, batches_tried), _best_of_each_kind(best))


def split_over(setup: Setup, degree: int) -> Setup:
    """Return a setup whose sequences are split over `degree` ranks, with the same samples per step."""
    if degree == setup.sequence_parallel:
        return setup
    of_group = setup.micro_batch * setup.accumulation * degree // setup.sequence_parallel
    return setup._replace(sequence_parallel=degree, micro_batch=1, accumulation=max(of_group, 1))


def _timed(batch: CostedBatch, one: Modelled, n: Counts, rates: Rates) -> CostedBatch:
    shape = one.facts.shape
    assert shape is not None
    return batch._replace(work=work(batch.setup, shape, n, idle_of(one), rates)) if rates.flops else batch


VARIED = {
    "stage": "stages", "optimizer_offload": "places of the optimizer", "param_offload": "places of the weights",
    "reduce_bucket": "sizes of buckets", "sub_group": "sizes of sub-groups", "overlap": "overlap_comm", "secondary": "sizes of hpZ",
    "quantized_weights": "qwZ", "quantized_gradients": "qgZ", "sequence_parallel": "degrees of sequence parallelism",
    "super_offload": "SuperOffload",
}  # fmt: skip
"""Fields of a Setup in which ZeRO settings differ -> their names for users."""


def _tried(ways: set[Setup], batches: set[tuple[int, bool]]) -> dict[str, int]:
    """Return the number of values of each dimension with several."""
    found = {name: len({getattr(way, field) for way in ways}) for field, name in VARIED.items()}
    found |= {"micro-batches": len({micro for micro, _again in batches}), "recomputation": len({again for _micro, again in batches})}
    return {name: number for name, number in found.items() if number > 1}


def batches_of(plan: Plan, one: Modelled, n: Counts) -> Iterator[CostedBatch]:
    """Yield every batch with the same samples per step, with and without checkpointing."""
    for micro, accumulation in _batches(plan, one.setup):
        for checkpointing, again in {(False, "full"): 0, (True, one.setup.recompute): 0, (True, "full"): 0}:
            setup = one.setup._replace(micro_batch=micro, accumulation=accumulation, checkpointing=checkpointing, recompute=again)
            yield CostedBatch(setup, batch_of(replace(one, setup=setup), n))


def _batches(plan: Plan, setup: Setup) -> list[tuple[int, int]]:
    """Return micro-batches and accumulations with the same samples per step. Values set by the script or the Trainer stay."""
    given = [plan.deepspeed.get(key) for key in ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")]
    if AUTO in given or given[:2] == [None, None]:
        return [(setup.micro_batch, setup.accumulation)]
    samples = setup.micro_batch * setup.accumulation
    return [(m, samples // m) for m in range(1, min(samples, MAX_MICRO) + 1) if samples % m == 0]


def sequence_degrees(plan: Plan, one: Modelled, room: Capacity) -> list[int]:
    """Return over how many ranks a sequence may be split (Ulysses): the Plan's own degree, and others if it has one or is long."""
    own, shape, setup = one.setup.sequence_parallel, one.facts.shape, one.setup
    written = plan.get("deepspeed.sequence_parallel_size") is not None
    open_to_it = written or (plan.job.integration == "deepspeed" and setup.sequence >= LONG_SEQUENCE and own == 1)
    if shape is None or not open_to_it or not setup.training:
        return [own]
    others = (d for d in (1, 2, 4, 8, 16) if d <= room.ranks_per_node and shape.heads % d == 0 and room.ranks % d == 0)
    return sorted({own, *(d for d in others if setup.samples * d % (room.ranks // setup.tensor_parallel) == 0)})


def zeros(plan: Plan, setup: Setup, room: Capacity, rates: Rates) -> Iterator[Setup]:
    """Yield the possible ZeRO settings."""
    buckets = [setup.reduce_bucket] if _is_auto(plan) else sorted({setup.reduce_bucket, *BUCKETS})
    for choice in (choice for choice in CHOICES if choice.possible(setup, room)):
        base = choice.of(setup)._replace(secondary=1, quantized_weights=False, quantized_gradients=False, super_offload=False)
        if choice.stage == 0:
            yield base._replace(overlap=False)
        elif choice.stage < 3:
            for bucket, overlap in product(buckets, (False, True)):
                yield base._replace(reduce_bucket=bucket, overlap=overlap)
        else:
            yield from _stage_3(base, setup, buckets, room, rates)


def _stage_3(base: Setup, setup: Setup, buckets: Sequence[int], room: Capacity, rates: Rates) -> Iterator[Setup]:
    groups, reuse = sorted({setup.sub_group, *SUB_GROUPS}), sorted({setup.reuse_distance, *REUSE})
    beside = [False, True] if base.optimizer_offload == "cpu" and rates.host_link >= FAST_LINK and not setup.zenflow else [False]
    for bucket, group, distance, prefetch in product(buckets, groups, reuse, PREFETCH):
        sized = base._replace(overlap=True, reduce_bucket=bucket, sub_group=group, reuse_distance=distance, prefetch_bucket=prefetch)
        for (secondary, weights, gradients), ahead in product(_plus_plus(base, setup, room), beside):
            yield sized._replace(secondary=secondary, quantized_weights=weights, quantized_gradients=gradients, super_offload=ahead)


def _plus_plus(base: Setup, setup: Setup, room: Capacity) -> list[tuple[int, bool, bool]]:
    """Return the worthwhile settings of ZeRO++: between nodes, for weights on the GPUs."""
    per_node = room.ranks_per_node
    own = (setup.secondary, setup.quantized_weights, setup.quantized_gradients)
    if room.nodes == 1 or per_node == 1 or base.param_offload != "none" or room.on_cpu:
        return [(1, False, False)]
    sizes = [1, *(size for size in {per_node // 2, per_node} if size > 1)]
    quantized = [(False, False), (True, False), (True, True)] if setup.precision in ("bf16", "fp16") else [(False, False)]
    return list(dict.fromkeys([own, *((size, *both) for size in sizes for both in quantized)]))


def _is_auto(plan: Plan) -> bool:
    zero = plan.deepspeed.get("zero_optimization")
    return isinstance(zero, Mapping) and zero.get("reduce_bucket_size") == AUTO


def space_of(setup: Setup, n: Counts, s: States, room: Capacity) -> Space | None:
    """Return the memory left for a batch; None if RAM or disk are too small already."""
    host, resting = host_room(setup, n, s).peak, sum(s.gpu.values())
    fixed = max(s.initialize, resting + sum(s.step.values()))
    around_it = beside(setup, n, s)
    if room.on_cpu:
        free = (room.host or 0) / room.ranks_per_node - sum(s.host.values()) - process_bytes(setup)
        return Space(fixed, resting, free, (1.1, 1.1), free, around_it)
    left = room.host / room.ranks_per_node - process_bytes(setup) if room.host is not None else float("inf")
    if host > left or sum(s.nvme.values()) * room.ranks_per_node > (room.nvme or 0):
        return None
    wasted = 1 + WASTED[setup.stage]
    free = ((room.gpu or 0) - around(setup)) / wasted
    kept, again = (fragmented(setup._replace(checkpointing=on)) / wasted for on in (False, True))
    return Space(fixed, resting, free, (kept, again), left - sum(s.host.values()), around_it, released_bytes(setup, s, varied=True))


def _best(  # noqa: PLR0913, PLR0917 - what is varied, and what is not
    ways: Sequence[Setup], batches: Sequence[CostedBatch], one: Modelled, n: Counts, room: Capacity, rates: Rates
) -> Iterator[Candidate]:
    """Yield the best of each kind among all combinations of these settings and batches."""
    import numpy as np

    shape = one.facts.shape
    assert shape is not None
    fitting = [(way, space) for way in ways if (space := space_of(way, n, states(way, n), room)) is not None]
    if not fitting:
        return
    spaces = [space for _way, space in fitting]
    peak = _peaks(spaces, [batch.activations for batch in batches])
    left = np.array([[space.room, *space.waste, space.host] for space in spaces])
    fits = (peak <= left[:, :1]) & (np.array([batch.activations.host for batch in batches]) <= left[:, 3:])
    tokens = np.zeros_like(peak)
    if rates.flops:
        moved = [traffic(way, shape, n, rates) for way, _space in fitting]
        step = _steps(moved, [batch.work for batch in batches if batch.work], [batch.setup.accumulation for batch in batches])
        tokens = batches[0].setup.samples * batches[0].setup.sequence / step
    again = np.array([batch.setup.checkpointing for batch in batches])[None, :]
    sure = fits & (peak * one.facts.widening * np.where(again, left[:, 2:3], left[:, 1:2]) <= left[:, :1])
    if one.shorter:
        sure &= peak + np.array([[space.released] for space in spaces]) <= left[:, :1]
    changes = np.array([_changes(way, one.setup) for way, _space in fitting], dtype=float)
    grid = Grid(fits, sure, tokens, peak, changes)
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for number, (way, _space) in enumerate(fitting):
        kinds.setdefault(_kind(way), []).append(number)
    for rows, recomputed in product(kinds.values(), (False, True)):
        columns = [number for number, batch in enumerate(batches) if batch.setup.checkpointing == recomputed]
        chosen = _choose(grid, rows, columns)
        if chosen is not None:
            way, space = fitting[chosen[0]]
            found = float(peak[chosen])
            speed, safe, changed = float(tokens[chosen]), bool(sure[chosen]), int(changes[chosen[0]])
            yield Candidate(way, batches[chosen[1]].setup, found, speed, changed, safe, found <= ROOMY * space.room)


class Grid(NamedTuple):
    """The results for every ZeRO setting (rows) with every batch (columns)."""

    fits: NDArray[Any]
    sure: NDArray[Any]
    tokens: NDArray[Any]
    peak: NDArray[Any]
    changes: NDArray[Any]
    """The number of changes of each row."""


def _peaks(spaces: Sequence[Space], batches: Sequence[Activations]) -> NDArray[Any]:
    """Return `Space.peak` for each space with each batch."""
    import numpy as np

    fixed, resting, at_loss, in_layers, at_end = np.array([[s.fixed, s.resting, *s.beside] for s in spaces]).T[:, :, None]
    kept, working, loss = np.array([[a.kept, a.work, a.loss] for a in batches]).T[:, None, :]
    running = np.maximum(np.maximum(kept + loss + at_loss, kept + working + in_layers), LAST * kept + at_end)
    peaks: NDArray[Any] = np.maximum(fixed, resting + running)
    return peaks


def _steps(moved: Sequence[Traffic], works: Sequence[Work], accumulations: Sequence[int]) -> NDArray[Any]:
    """Return `speed.step_seconds` for each traffic with each batch."""
    import numpy as np

    seconds = [t[:-1] for t in moved]  # without the names of the bottlenecks
    micro, boundary, copies, optimizer, hidden, hides, host, stall, overlap, adding = np.array(seconds).T[:, :, None]
    compute, away = np.array([[w.compute, w.copies] for w in works]).T[:, None, :]
    times = np.array(accumulations)[None, :]
    moved_in_each = micro + copies + away
    running = np.maximum(compute, moved_in_each) + (1 - overlap) * np.minimum(compute, moved_in_each)
    each = np.maximum(running, host) + stall
    steps: NDArray[Any] = times * each + (times - 1) * adding + boundary + optimizer + np.maximum(hidden - hides * times * compute, 0.0)
    return steps


def _choose(grid: Grid, rows: Sequence[int], columns: Sequence[int]) -> tuple[int, int] | None:
    """Return the best of one kind: what surely fits, then the fastest, then (if equally fast) the fewest changes and least memory."""
    import numpy as np

    at = np.ix_(rows, columns)
    fits, sure, tokens, peak = grid.fits[at], grid.sure[at], grid.tokens[at], grid.peak[at]
    if not fits.any():
        return None
    good = sure if sure.any() else fits
    alike = good & (tokens >= tokens[good].max() * (1 - LIKE / 3))
    cost = np.where(alike, grid.changes[rows][:, None] + peak / (1 + peak.max()), np.inf)
    row, column = np.unravel_index(int(np.argmin(cost)), cost.shape)
    return rows[int(row)], columns[int(column)]


def _kind(way: Setup) -> tuple[Any, ...]:
    """Return the key by which users choose."""
    place = (way.stage, way.optimizer_offload, way.param_offload)
    return (*place, way.secondary, way.quantized_weights, way.quantized_gradients, way.super_offload, way.sequence_parallel)


def _best_of_each_kind(found: Sequence[Candidate]) -> list[Candidate]:
    """Return the best of each kind if several batches with and without accumulation gave one each."""
    best: dict[tuple[Any, ...], Candidate] = {}
    for c in found:
        kind = (*_kind(c.zero), c.batch.checkpointing)
        known = best.get(kind)
        if known is None or (c.sure, c.tokens, -c.changes) > (known.sure, known.tokens * (1 - LIKE / 3), -known.changes):
            best[kind] = c
    return list(best.values())


def _changes(setup: Setup, was: Setup) -> int:
    """Return how many sizes of buckets and groups differ from the Plan's."""
    return sum(bool(getattr(setup, field) != getattr(was, field)) for field in KEYS) + (setup.overlap != was.overlap)
