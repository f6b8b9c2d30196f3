"""The capacity for a Plan: ranks, nodes, and the free memory of a GPU, of a node's RAM and of its disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dstui.base.dataclass import dataclass
from dstui.check.context import UNPROBED
from dstui.machine.snapshot import Gpu, Machine, known
from dstui.plan import Plan
from dstui.render.launch import RenderError, ranks_on_cpus, runs_here, slots

_STANDS_IN = "they are assumed to be like this machine"
_NOT_KNOWN = "what is free there is not known (--gpu-memory 80GB, or --machine FILE with a snapshot of one of them)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity for a Plan; None for values that the Machine does not have."""

    ranks: int
    nodes: int
    gpus: tuple[int, ...] = ()
    """The used GPUs of a node, if the Machine knows them."""
    on_cpu: bool = False
    gpu: int | None = None
    """Free bytes of the fullest of these GPUs."""
    host: int | None = None
    nvme: int | None = None
    unknown: tuple[str, ...] = ()

    def shrunk(self, scale: float) -> Capacity:
        """Return the capacity divided by `scale`: a forecast fits in it if `scale` times the forecast fits in this one."""
        if self.on_cpu:
            return replace(self, host=int(self.host / scale) if self.host else self.host)
        return replace(self, gpu=int(self.gpu / scale) if self.gpu else self.gpu)

    @property
    def ranks_per_node(self) -> int:
        """Ranks on the fullest node."""
        return -(-self.ranks // self.nodes)


def capacity_of(plan: Plan, machine: Machine, pool: Mapping[str, int] | None = None, gpu_memory: int | None = None) -> Capacity:
    """Return the capacity for a Plan on a Machine, assuming equal nodes. `gpu_memory` replaces the memory of a GPU."""
    reported: list[str] = []
    try:
        used = slots(plan, machine, pool)
    except RenderError:
        used = None
    if used is None:
        reported.append("how many ranks there will be is not known: one is assumed")
        used = {"localhost": [0]}
    ranks, nodes = sum(map(len, used.values())) or 1, max(len(used), 1)
    numbers = next(iter(used.values()))
    others = [] if machine.recorded or machine.source == UNPROBED or runs_here(machine, used) else list(used)
    if others and machine.accelerator == "cpu" and not ranks_on_cpus(plan, machine, others):
        machine = Machine.unprobed()  # a login node without a GPU says nothing about them
    if others and gpu_memory is None:
        named = ", ".join(others[:2]) + (f" and {len(others) - 2} more" if len(others) > 2 else "")
        reported.append(f"not probed: {named}: {_STANDS_IN if machine.source != UNPROBED else _NOT_KNOWN}")
    here = [gpu for gpu in machine.gpus if gpu.problem is None]
    mine = [gpu for gpu in here if gpu.index in set(numbers)] or here[: len(numbers)]
    on_cpu = not here and machine.source != UNPROBED and gpu_memory is None
    free = [room for gpu in mine if (room := free_bytes(gpu)) is not None]
    if here and not free and gpu_memory is None:
        reported.append("the memory of the Machine's GPUs is unknown: give it, such as --gpu-memory 80GB")
    return Capacity(
        ranks=ranks,
        nodes=nodes,
        gpus=tuple(gpu.index for gpu in mine),
        on_cpu=on_cpu,
        gpu=gpu_memory if gpu_memory is not None else min(free, default=None),
        host=_ram(machine),
        nvme=_disk(plan, machine),
        unknown=tuple(reported),
    )


def free_bytes(gpu: Gpu) -> int | None:
    """Return the bytes of a GPU that a job may use: without those of the driver and of other processes."""
    if not isinstance(gpu.memory_total, int):
        return None
    return max(gpu.memory_total - known(gpu.memory_used, 0) - known(gpu.memory_reserved, 0), 0)


def _ram(machine: Machine) -> int | None:
    """Return the free RAM for a job: available, and within the cgroup's limit."""
    host = machine.host
    found = [value for value in (host.memory_available, host.memory_total) if isinstance(value, int)][:1]
    limit = known(host.memory_limit, None)
    if limit:
        found.append(max(limit - known(host.memory_limit_used, 0), 0))
    return min(found, default=None)


def _disk(plan: Plan, machine: Machine) -> int | None:
    """Return the free bytes on the disk of nvme_path; if the Plan names none, on the NVMe disk with the most free space."""
    disks = [disk for disk in known(machine.host.disks, ()) if isinstance(disk.free, int) and not disk.read_only]
    zeros = [config.get("zero_optimization") for config in plan.configurations.values()]
    places = [zero.get(key) for zero in zeros if isinstance(zero, Mapping) for key in ("offload_optimizer", "offload_param")]
    path = next((str(place["nvme_path"]) for place in places if isinstance(place, Mapping) and place.get("nvme_path")), None)
    if path is None:
        return max((known(disk.free, 0) for disk in disks if known(disk.nvme, False)), default=None)
    holding = [disk for disk in disks if path == disk.mount or path.startswith(disk.mount.rstrip("/") + "/")]
    return known(max(holding, key=lambda disk: len(disk.mount)).free, 0) if holding else None
