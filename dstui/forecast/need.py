"""The needed bytes in one place, and whether they fit: of each GPU, in the RAM of each node, on its disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from dstui.base.dataclass import dataclass
from dstui.forecast.capacity import Capacity
from dstui.forecast.corrections import Scale
from dstui.forecast.memory import (
    BUILD,
    CUDA_CONTEXT,
    INSIDE,
    INSIDE_KEPT,
    LEAST_CUDA,
    WASTED,
    Needs,
    Room,
    around,
    fragmented,
    keeps_activations,
    nccl_bytes,
    process_bytes,
)
from dstui.forecast.setup import Setup

Verdict = Literal["fits", "tight", "too big", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Needed bytes in one place: of each GPU, or of each node."""

    parts: Mapping[str, int] = field(default_factory=dict)
    """By part, at the moment of the peak; they sum up to `bytes`."""
    moments: Mapping[str, int] = field(default_factory=dict)
    """The peak of each moment."""
    bytes: int | None = None
    range: tuple[int, int] = (0, 0)
    capacity: int | None = None
    """The free bytes there; None if the Machine does not tell."""

    @property
    def peak(self) -> str:
        """The moment of the peak."""
        return max(self.moments, key=lambda moment: self.moments[moment], default="")

    @property
    def verdict(self) -> Verdict:
        """Return whether it fits: with its whole range, only by the estimate, or not."""
        if self.bytes is None or self.capacity is None:
            return "unknown"
        return "too big" if self.bytes > self.capacity else "tight" if self.range[1] > self.capacity else "fits"

    @property
    def may_fit(self) -> bool:
        """Return whether the estimate is too big and the lower end of the range is not."""
        return self.verdict == "too big" and self.range[0] <= (self.capacity or 0)

    @property
    def word(self) -> str:
        """Return the verdict for people."""
        return "probably too big" if self.may_fit else self.verdict

    @property
    def headroom(self) -> float | None:
        """The share of the capacity that is left; negative where it is too small."""
        return 1 - self.bytes / self.capacity if self.bytes is not None and self.capacity else None

    def begun_at(self, least: int) -> Need:
        """Return the need with a range that begins where that of a smaller one does."""
        return replace(self, range=(least, self.range[1])) if least < self.range[0] else self


def gpu_need(room: Room, setup: Setup, capacity: Capacity, wide: float = 1.0, wider: float = 0.0) -> Need:
    """Return a GPU's need including its process; 0 for CPU ranks. `wide`, `wider`: a factor of the range, and bytes of its upper end."""
    if capacity.on_cpu:
        return Need()
    peak = room.peak
    around = {"cuda_context": CUDA_CONTEXT, "nccl_buffers": nccl_bytes(setup), "allocator": peak * WASTED[setup.stage]}
    more = sum(around.values())
    parts = round_parts({part: size for part, size in {**room.parts, **around}.items() if size > 0}, peak + more)
    moments = {moment: int(size + more) for moment, size in room.moments.items()}
    fixed = more - around["allocator"]
    high = (peak + wider) * fragmented(setup) * wide + fixed
    span = (lower_end(peak, setup, wide), int(high))
    return Need(parts=parts, moments=moments, bytes=int(peak + more), range=span, capacity=capacity.gpu)


def lower_end(peak: float, setup: Setup, wide: float) -> int:
    """Return the lower end of a GPU's range."""
    return int(peak * (INSIDE_KEPT if keeps_activations(setup) else INSIDE) / wide + around(setup))


def host_need(found: Needs, setup: Setup, capacity: Capacity) -> Need:
    """Return a node's need of RAM: that of its ranks, on CPUs including what GPUs would hold."""
    ranks = capacity.ranks_per_node
    process, least = process_bytes(setup), process_bytes(setup, LEAST_CUDA)
    moments = dict(found.host.moments)
    parts = dict(found.host.parts)
    if capacity.on_cpu:
        held = sum(found.host.parts.values())
        moments = {moment: size + held for moment, size in found.gpu.moments.items()} | {BUILD: found.host.moments.get(BUILD, 0.0)}
        for part, size in found.gpu.parts.items():
            parts[part] = parts.get(part, 0) + size
    most = max(moments.values(), default=0.0)
    spike = most - sum(parts.values())
    if spike > 0:
        parts[max(moments, key=lambda moment: moments[moment])] = spike
    point = ranks * (most + process)
    pinned = 1.3 if setup.pinned and setup.optimizer_offload != "none" and not capacity.on_cpu else 1.05
    return Need(
        parts=round_parts({part: ranks * size for part, size in {**parts, "processes": process}.items() if size > 0}, point),
        moments={moment: int(ranks * (size + process)) for moment, size in moments.items()},
        bytes=int(point),
        range=(int(ranks * (most + least) * 0.9), int(ranks * (most * pinned + process * 1.5))),
        capacity=capacity.host,
    )


def scaled(need: Need, part: Scale, spread: float) -> Need:
    """Return a need corrected by runs of this model. The range is narrower, the more so the less the runs differ."""
    if part.scale == 1.0 or need.bytes is None:
        return need
    total = need.bytes * part.scale
    moments = {moment: int(size * part.scale) for moment, size in need.moments.items()}
    parts = round_parts({name: size * part.scale for name, size in need.parts.items()}, total)
    return replace(need, parts=parts, moments=moments, bytes=int(total), range=(int(total * max(1 - spread, 0)), int(total * (1 + spread))))


def round_parts(parts: Mapping[str, float], total: float) -> dict[str, int]:
    """Round parts to integers that sum up to the total."""
    rounded = {part: int(size) for part, size in parts.items() if size >= 1}
    if rounded:
        largest = max(rounded, key=lambda part: rounded[part])
        rounded[largest] += int(total) - sum(rounded.values())
    return rounded
