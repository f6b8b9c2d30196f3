"""CPU and NUMA binding of ranks: what DeepSpeed's --bind_cores_to_rank does on a machine, and what is right.

DeepSpeed gives rank i of n the i-th n-th of the physical cores, counted from 0, whichever node its GPU belongs to (deepspeed/utils/numa.py,
get_numactl_cmd; release 0.19.8). If the GPUs' nodes do not ascend with their numbers, that is the remote node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from dstui.base.dataclass import dataclass
from dstui.machine.codec import Unknown, known
from dstui.machine.snapshot import Machine


@dataclass(frozen=True, slots=True)
class Binding:
    """The CPUs of one local rank, and the NUMA node of its GPU (None if unknown)."""

    rank: int
    gpu: int
    cpus: tuple[int, ...]
    node: int | None

    @property
    def cpu_list(self) -> str:
        """The CPUs in the notation of numactl and the kernel: 0-3,8."""
        return format_cpu_list(self.cpus)


@lru_cache(maxsize=64)
def parse_cpu_list(cpus: str) -> tuple[int, ...]:
    """Parse a list like 0-3,8 into numbers; empty if it is malformed."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", cpus):
        return ()
    parts = [part.split("-") for part in cpus.split(",")]
    return tuple(cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1))


def format_cpu_list(cpus: Sequence[int]) -> str:
    """Format ascending numbers as a list like 0-3,8."""
    starts = [cpu for place, cpu in enumerate(cpus) if place == 0 or cpus[place - 1] != cpu - 1]
    ends = [cpu for place, cpu in enumerate(cpus) if place == len(cpus) - 1 or cpus[place + 1] != cpu + 1]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def physical_cores(machine: Machine) -> int | None:
    """Return the number of physical cores that DeepSpeed would count; None if unknown.

    If the host does not tell, the GPUs' CPU lists do: two runs of equal length per socket (0-55,112-167) are hyper-threads, which Linux
    numbers after all cores, so that the highest number in the first runs is the last core.
    """
    if isinstance(machine.host.cores, int):
        return machine.host.cores
    lists = {gpu.cpus for gpu in machine.gpus if isinstance(gpu.cpus, str)}
    if len(lists) < 2:
        return None
    cores = [cpu for text in lists for cpu in parse_cpu_list(text.split(",")[0] if _halves(text) else text)]
    return max(cores, default=-1) + 1


def _halves(cpus: str) -> bool:
    runs = [parse_cpu_list(run) for run in cpus.split(",")]
    return len(runs) == 2 and len(runs[0]) == len(runs[1])


def deepspeed_binding(machine: Machine, gpus: Sequence[int]) -> tuple[Binding, ...]:
    """Return how --bind_cores_to_rank binds ranks on these GPUs; empty if the number of cores is unknown."""
    cores, count = physical_cores(machine), len(gpus)
    if not cores or not count or cores < count:
        return ()
    each = cores // count
    return tuple(_bind_to_gpu(machine, rank, gpu, tuple(range(each * rank, each * (rank + 1)))) for rank, gpu in enumerate(sorted(gpus)))


def _bind_to_gpu(machine: Machine, rank: int, gpu: int, cpus: tuple[int, ...]) -> Binding:
    return Binding(rank, gpu, cpus, known(machine.gpus[gpu].numa_node, None))


def misplaced_ranks(machine: Machine, bindings: Sequence[Binding]) -> tuple[Binding, ...]:
    """Return the bindings with a CPU that is not near the rank's GPU. GPUs with unknown CPUs are skipped."""
    near = {gpu.index: set(parse_cpu_list(known(gpu.cpus, ""))) for gpu in machine.gpus}
    return tuple(binding for binding in bindings if near[binding.gpu] and not set(binding.cpus) <= near[binding.gpu])


def near_binding(machine: Machine, gpus: Sequence[int]) -> tuple[Binding, ...]:
    """Bind each rank to CPUs near its GPU, sharing those of a node evenly among its ranks; empty if a GPU's CPUs are unknown."""
    wanted = sorted(gpus)
    near = {gpu: known(machine.gpus[gpu].cpus, "") for gpu in wanted}
    if not wanted or not all(parse_cpu_list(cpus) for cpus in near.values()):
        return ()
    found = []
    for rank, gpu in enumerate(wanted):
        sharing = [other for other in wanted if near[other] == near[gpu]]
        groups = _core_groups(machine, near[gpu])
        each = len(groups) // len(sharing)
        if not each:
            return ()
        place = sharing.index(gpu)
        cpus = tuple(sorted(cpu for group in groups[place * each : (place + 1) * each] for cpu in group))
        found.append(_bind_to_gpu(machine, rank, gpu, cpus))
    return tuple(found)


def even_binding(machine: Machine, ranks: int) -> tuple[Binding, ...]:
    """Bind each CPU rank to an equal share of the usable cores; empty if there are too few or their number is unknown."""
    groups = [parse_cpu_list(group) for group in known(machine.host.core_groups, ())]
    each = len(groups) // ranks if ranks else 0
    if not each:
        return ()
    shares = [groups[rank * each : (rank + 1) * each] for rank in range(ranks)]
    return tuple(Binding(rank, rank, tuple(sorted(cpu for group in share for cpu in group)), None) for rank, share in enumerate(shares))


def _core_groups(machine: Machine, cpus: str) -> list[tuple[int, ...]]:
    """Return the physical cores of a CPU list, each as its hardware threads; only those that this process may use, if known."""
    inside = set(parse_cpu_list(cpus))
    reported = machine.host.core_groups
    if not isinstance(reported, Unknown):
        groups = [tuple(cpu for cpu in parse_cpu_list(group) if cpu in inside) for group in reported]
        return [group for group in groups if group]
    if _halves(cpus):
        first, second = (parse_cpu_list(run) for run in cpus.split(","))
        return list(zip(first, second, strict=True))
    return [(cpu,) for cpu in sorted(inside)]


def numactl_wrapper(bindings: Sequence[Binding]) -> str:
    """Return a script that starts a rank on its own CPUs, chosen by LOCAL_RANK: `bind.sh python -u train.py …`.

    Memory is bound to the GPU's node if that is known. A node without CPUs is never named. KMP_AFFINITY would override the binding.

    A launcher puts --local_rank=N before the interpreter, though it is for the script: the wrapper moves it behind the script's name.
    """
    cases = "".join(f'  {b.rank}) set -- {_numactl(b)} "$@"; OMP_NUM_THREADS={len(b.cpus)} ;;\n' for b in bindings)
    return WRAPPER.replace("CASES\n", cases)


WRAPPER = """\
#!/bin/sh
# Starts a rank on the CPUs beside its GPU. Written by dstui.
case "$1" in
  --local_rank=*|--local-rank=*)
    local_rank=$1; python=$2; unbuffered=$3; script=$4; shift 4
    if [ "$script" = -m ]; then
      module=$1; shift
      set -- "$python" "$unbuffered" -m "$module" "$local_rank" "$@"
    else
      set -- "$python" "$unbuffered" "$script" "$local_rank" "$@"
    fi ;;
esac
unset KMP_AFFINITY
case "$LOCAL_RANK" in
CASES
esac
export OMP_NUM_THREADS
exec "$@"
"""


def _numactl(binding: Binding) -> str:
    memory = f" --membind={binding.node}" if binding.node is not None else ""
    return f"numactl --physcpubind={binding.cpu_list}{memory}"
