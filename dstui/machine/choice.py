"""Choose GPUs for k ranks: free ones with the best links, then those that share a NUMA node.

DeepSpeed's launcher sorts the slots of a host (launcher/runner.py, parse_resource_filter), so that only the set can be chosen, not the
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

from dstui.base.dataclass import dataclass
from dstui.machine.snapshot import Gpu, Machine, Unknown
from dstui.machine.topology import width

MAX_SETS = 200
"""With more sets than this they are not compared one by one (1 ms for 100): the best island is filled from its front instead."""
IDLE_BYTES = 2 << 30
IDLE_SHARE = 0.05
"""A GPU is idle if less than this share of its memory is in use: driver, display and a forgotten notebook take about as much."""


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """A set of GPUs with its rating. Fewer `flaws` are better, compared in the order of the tuple."""

    gpus: tuple[int, ...]
    flaws: tuple[float, ...]


def is_busy(gpu: Gpu) -> bool:
    """Return whether the GPU is in use, by its memory: in a container the list of processes is empty."""
    if isinstance(gpu.memory_used, Unknown) or isinstance(gpu.memory_total, Unknown):
        return bool(gpu.processes)
    return gpu.memory_used > max(IDLE_BYTES, IDLE_SHARE * gpu.memory_total)


def usable_gpus(machine: Machine) -> tuple[int, ...]:
    """Return the GPUs that a rank can run on."""
    return tuple(gpu.index for gpu in machine.gpus if gpu.problem is None)


class _Rating:
    """Rates sets of GPUs of one machine. Values that do not depend on the set are looked up once."""

    def __init__(self, machine: Machine) -> None:
        self.widths = [[width(cell) for cell in row] for row in machine.links]
        self.distant = [[cell in ("SYS", "NODE") for cell in row] for row in machine.links]
        self.island = {gpu: place for place, island in enumerate(machine.islands) for gpu in island.gpus}
        self.busy = [is_busy(gpu) for gpu in machine.gpus]
        self.node = [gpu.numa_node if isinstance(gpu.numa_node, int) else None for gpu in machine.gpus]

    def of(self, gpus: Sequence[int]) -> GpuChoice:
        """Rate a set of GPUs, in ascending order, for a job that communicates all to all."""
        pairs = list(combinations(gpus, 2)) if self.widths else []
        widths = [min(self.widths[i][j], self.widths[j][i]) for i, j in pairs]
        joined = any(widths)
        flaws = (
            sum(self.busy[gpu] for gpu in gpus),
            len({self.island.get(gpu, gpu) for gpu in gpus}),
            widths.count(0),
            -min(widths, default=0),
            -sum(widths),
            0 if joined else sum(self.distant[i][j] for i, j in pairs),
            len({self.node[gpu] for gpu in gpus} - {None}),
        )
        return GpuChoice(tuple(gpus), flaws)


def rate(machine: Machine, gpus: Sequence[int]) -> GpuChoice:
    """Rate a set of GPUs for a job that communicates all to all."""
    return _Rating(machine).of(sorted(gpus))


def choose(machine: Machine, count: int) -> GpuChoice | None:
    """Return the best `count` GPUs; None if fewer work."""
    there = usable_gpus(machine)
    if not 0 < count <= len(there):
        return None
    rating = _Rating(machine)
    if comb(len(there), count) <= MAX_SETS:
        return min(map(rating.of, combinations(there, count)), key=lambda choice: (choice.flaws, choice.gpus))
    islands = sorted((island.gpus for island in machine.islands), key=lambda gpus: (len(gpus) < count, len(gpus), gpus))
    ordered = [gpu for gpus in islands for gpu in sorted(gpus, key=lambda gpu: (rating.busy[gpu], gpu)) if gpu in there]
    return rating.of(sorted(ordered[:count]))
