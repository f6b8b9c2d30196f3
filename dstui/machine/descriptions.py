"""Describe a machine, and its islands, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dstui.machine.codec import Unknown
from dstui.machine.snapshot import GIB, Island, Kind, Machine


def summarise(machine: Machine) -> str:
    """Describe a machine in a few words: `8 x H100 80GB, one NVSwitch island`; `no GPU, 2 cores, 24 GB RAM`."""
    return _gpu_summary(machine) if machine.gpus else _host_summary(machine)


def _gpu_summary(machine: Machine) -> str:
    names = Counter(gpu.short_name for gpu in machine.gpus if gpu.problem is None) or Counter({"GPU": len(machine.gpus)})
    gpus = " + ".join(f"{count} x {name}" for name, count in names.items())
    broken = [str(gpu.index) for gpu in machine.gpus if gpu.problem]
    working = [island for island in machine.islands if not all(machine.gpus[gpu].problem for gpu in island.gpus)]
    parts = [gpus, describe_islands(working), f"GPU {', '.join(broken)} not usable" if broken else ""]
    return ", ".join(part for part in parts if part)


def describe_islands(islands: Sequence[Island]) -> str:
    """Describe islands: `one NVSwitch island`, `2 NVLink pairs`, `no NVLink`; "" for a single GPU."""
    joined = [island for island in islands if island.kind != "single"]
    if not joined:
        return "no NVLink" if len(islands) > 1 else ""
    alone = len(islands) - len(joined)
    groups = Counter((island.kind, len(island.gpus)) for island in joined)
    words = [_island_words(kind, size, count, count == len(islands)) for (kind, size), count in groups.items()]
    return " + ".join(words) + (f" + {alone} alone" if alone else "")


def _island_words(kind: Kind, size: int, count: int, only: bool) -> str:
    name = {"NVSwitch": "NVSwitch island", "pair": "NVLink pair"}.get(kind, f"NVLink {kind}")
    sized = "" if kind == "pair" or (only and count == 1) else f" of {size}"
    return f"{'one' if count == 1 else count} {name}{'es' if count > 1 and name.endswith('mesh') else 's' if count > 1 else ''}{sized}"


def _host_summary(machine: Machine) -> str:
    host = machine.host
    if isinstance(host.cpus_usable, Unknown) and isinstance(host.memory, Unknown):
        return "machine not checked yet" if machine == Machine.unprobed() else "no GPU"
    cores = f"{host.cpus_usable} cores" if host.cpus_usable else "cores unknown"
    memory = host.memory
    return f"no GPU, {cores}, " + (f"{round(memory / GIB)} GB RAM" if isinstance(memory, int) else "RAM unknown")


def describe_gpus(gpus: tuple[int, ...] | list[int]) -> str:
    """Format `GPU 3`, `GPUs 0, 2 and 5`."""
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    return f"GPUs {', '.join(map(str, gpus[:-1]))} and {gpus[-1]}"
