"""Describe a Machine: in one line, or as text for a terminal with problems first, then GPUs, links, islands, host and software."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dstui.base.text import counted
from dstui.machine.codec import Maybe, Unknown
from dstui.machine.snapshot import GIB, Gpu, Host, Island, Kind, Machine, Software


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
    cores = counted(host.cpus_usable, "core") if host.cpus_usable else "cores unknown"
    memory = host.memory
    return f"no GPU, {cores}, " + (f"{round(memory / GIB)} GB RAM" if isinstance(memory, int) else "RAM unknown")


def describe_gpus(gpus: tuple[int, ...] | list[int]) -> str:
    """Format `GPU 3`, `GPUs 0, 2 and 5`."""
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    return f"GPUs {', '.join(map(str, gpus[:-1]))} and {gpus[-1]}"


def render_report(machine: Machine, meaning: Iterable[str]) -> str:
    """Format the machine as text, ending with a newline. `meaning`: lines about the consequences."""
    blocks = [_head(machine), _gpus(machine.gpus), _links(machine), _islands(machine), _host(machine.host), _software(machine.software)]
    blocks.append(iter(meaning))
    return "\n\n".join("\n".join(lines) for block in blocks if (lines := list(block))) + "\n"


def format_size(count: Maybe[int | None], none: str = "no limit") -> str:
    """Format bytes: 512 MB, 79.6 GB, 1.5 TB (units of 1024)."""
    if isinstance(count, Unknown):
        return "unknown"
    if count is None:
        return none
    for unit, scale in (("TB", 1 << 40), ("GB", GIB), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 999.5 * scale else f"{count / scale:.0f} {unit}"
    return f"{count} B"


def _head(machine: Machine) -> Iterator[str]:
    driver = machine.driver
    yield summarise(machine)
    if machine.source != "this machine":
        yield f"from {machine.source}"
    if isinstance(driver.state, Unknown) and not machine.gpus:
        yield f"NVIDIA driver: {driver.state.reason}"
    elif driver.version:
        yield f"driver {driver.version}, CUDA up to {driver.cuda}"


def _gpus(gpus: Sequence[Gpu]) -> Iterator[str]:
    titles = ("#", "name", "memory used", "util", "temp", "power", "PCIe", "NUMA", "CPUs", "")
    columns = list(zip(titles, *(_gpu_row(gpu) for gpu in gpus), strict=True)) if gpus else []
    reported = [column for column in columns if set(column[1:]) - {"?", ""}]
    yield from _table(zip(*reported, strict=True))


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    if gpu.problem:
        return (str(gpu.index), str(gpu.name), "", "", "", "", "", "", "", f"not usable: {gpu.problem}")
    return (
        str(gpu.index),
        gpu.short_name,
        "?" if isinstance(gpu.memory_total, Unknown) else f"{format_size(gpu.memory_used)} / {format_size(gpu.memory_total)}",
        _with(gpu.utilization, " %"),
        _with(gpu.temperature, " C"),
        f"{gpu.power:.0f} W" if isinstance(gpu.power, float) else "?",
        "?" if isinstance(gpu.pcie_width, Unknown) else f"{_with(gpu.pcie_generation_max, '')} x{gpu.pcie_width}",
        _with(gpu.numa_node, ""),
        _with(gpu.cpus, ""),
        "MIG" if gpu.mig is True else "",
    )


def _with(value: Maybe[object], unit: str) -> str:
    return "?" if isinstance(value, Unknown) else f"{value}{unit}"


def _links(machine: Machine) -> Iterator[str]:
    if len(machine.gpus) > 1 and machine.links:
        names = [f"GPU{gpu.index}" for gpu in machine.gpus]
        yield from _table([("", *names), *((name, *row) for name, row in zip(names, machine.links, strict=True))])


def _islands(machine: Machine) -> Iterator[str]:
    alone = [island.gpus[0] for island in machine.islands if island.kind == "single"]
    for island in machine.islands:
        if island.kind == "single":
            continue
        least, most = island.width or (0, 0)
        width = f"{least} to {most} links" if least != most else "1 link" if most == 1 else f"{most or 'not known how many'} links"
        speed = f", {island.bandwidth / 1000:.0f} GB/s" if isinstance(island.bandwidth, int) else ""
        yield f"{describe_gpus(island.gpus)}: {island.kind}, {width} between two{speed}"
        if len(island.clique) < len(island.gpus):
            yield "  all pairs connected: " + " or ".join(", ".join(map(str, clique)) for clique in island.cliques)
    if alone and len(machine.gpus) > 1:
        yield f"{describe_gpus(alone)}: no working NVLink"


def _host(host: Host) -> Iterator[str]:
    if isinstance(host.name, Unknown) and isinstance(host.memory, Unknown):
        return
    rows = [
        ("host", f"{host.name}, {host.system}, Linux {host.kernel}" + (f", in a container ({host.container})" if host.container else "")),
        ("CPU", f"{host.cpu}: {host.cpus_usable} of {host.cpus} usable ({counted(host.cores_usable, 'core')})" + _quota(host)),
        (
            "RAM",
            f"{format_size(host.memory_total)}, {format_size(host.memory_available)} available, "
            f"cgroup limit {format_size(host.memory_limit, 'none')}",
        ),
        ("/dev/shm", f"{format_size(host.shm_free)} free of {format_size(host.shm_total)}"),
        ("limits", f"memlock {format_size(host.memlock)}, open files {_limit(host.nofile)}, processes {_limit(host.nproc)}"),
    ]
    if not isinstance(host.numa, Unknown) and len(host.numa) > 1:
        rows.append(("NUMA", "; ".join(f"{node.id}: CPUs {node.cpus or 'none'}, {format_size(node.memory)}" for node in host.numa)))
    if not isinstance(host.disks, Unknown):
        rows += [
            ("disk", f"{d.mount} ({d.filesystem}{', NVMe' if d.nvme is True else ''}): {format_size(d.free)} free") for d in host.disks
        ]
    if not isinstance(host.infiniband, Unknown):
        rows += [("RDMA", f"{p.device}:{p.port} {p.link_layer} {p.state} {p.gbps} Gb/s") for p in host.infiniband]
    if not isinstance(host.nics, Unknown):
        rows += [("network", f"{n.name} {n.state}{_speed(n.speed)}") for n in host.nics if not n.virtual]
    if host.scheduler:
        rows.append(("scheduler", f"{host.scheduler}: {', '.join(f'{k}={v}' for k, v in host.allocation.items())}"))
    if host.environment:
        rows.append(("set here", ", ".join(f"{key}={value}" for key, value in host.environment.items())))
    yield from _table(rows)


def _quota(host: Host) -> str:
    return f", cgroup quota {host.cpu_quota:g}" if isinstance(host.cpu_quota, float) else ""


def _speed(megabits: Maybe[int]) -> str:
    return "" if isinstance(megabits, Unknown) else f" {megabits / 1000:g} Gb/s"


def _limit(value: Maybe[int | None]) -> str:
    return "no limit" if value is None else str(value)


def _software(software: Software) -> Iterator[str]:
    if isinstance(software.python, Unknown):
        return
    build = "" if isinstance(software.torch_cuda, Unknown) else f" (CUDA {software.torch_cuda or 'none'})"
    versions = [("Python", software.python), ("torch", f"{software.torch}{build}" if software.torch else software.torch)]
    versions += [(name, getattr(software, name)) for name in ("deepspeed", "accelerate", "transformers")]
    yield ", ".join(f"{name} {_installed(version)}" for name, version in versions)
    programs = [("g++", software.gxx)]
    programs += [(name, getattr(software, name)) for name in ("nvcc", "ninja", "ssh", "pdsh", "mpirun", "srun", "numactl")]
    for words, names in (("found", [n for n, where in programs if where]), ("not found", [n for n, where in programs if where is None])):
        if names:
            yield f"{words}: {', '.join(names)}"


def _installed(version: Maybe[str | None]) -> str:
    return "not installed" if version is None else str(version)


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Align cells in columns. The last column is not padded."""
    rows = [tuple(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
