"""What is known of a machine, as rows of the Machine step. Apart, since the snapshot's module is needed only once there is one."""

from __future__ import annotations

from typing import Any

from dstui.machine.snapshot import GIB, Gpu, Machine, Unknown, known
from dstui.tui.fields import Field


def machine_facts(machine: Machine) -> tuple[Field, ...]:
    """Links, host and software."""
    return (*_links(machine), *_host(machine))


def bar(part: float, cells: int = 8) -> str:
    """A share of 0 to 1 as filled and empty cells."""
    full = round(min(max(part, 0.0), 1.0) * cells)
    return "█" * full + "░" * (cells - full)


def gpu_line(gpu: Gpu) -> str:
    """Memory as a bar and in numbers, and how busy it is."""
    total, used = known(gpu.memory_total, 0), known(gpu.memory_used, 0)
    memory = f"{bar(used / total)} {used / GIB:.0f}/{total / GIB:.0f} GB" if total else "memory unknown"
    busy = f"  {gpu.utilization} %" if isinstance(gpu.utilization, int) else ""
    return memory + busy


def _info(path: str, label: str, text: str, title: str = "") -> Field:
    return Field(path=path, label=label, kind="info", title=title, says=lambda _state: text)


def _size(value: Any) -> str:
    if not isinstance(value, int):
        return "unknown"
    return f"{value / GIB:,.0f} GB" if value >= GIB else f"{value / 2**20:,.0f} MB"


def _host(machine: Machine) -> tuple[Field, ...]:
    host, software = machine.host, machine.software
    limit = " (cgroup limit)" if isinstance(host.memory_limit, int) else ""
    lines = (
        ("host.cpu", "CPUs", f"{known(host.cpus_usable, '?')} usable · {known(host.cpu, 'model unknown')}"),
        ("host.memory", "RAM", f"{_size(host.memory)}{limit} · {_size(host.memory_available)} free"),
        ("host.shm", "/dev/shm", f"{_size(host.shm_total)} · {_size(host.shm_free)} free"),
        ("software.torch", "torch", _torch(machine)),
        ("software.deepspeed", "deepspeed", known(software.deepspeed, "unknown") or "not installed here"),
        ("software.driver", "NVIDIA driver", _driver(machine)),
        ("software.gxx", "C++ compiler", known(software.gxx, "unknown") or "none"),
    )
    return tuple(_info(path, label, text, "Host and software" if number == 0 else "") for number, (path, label, text) in enumerate(lines))


def _torch(machine: Machine) -> str:
    version, cuda = machine.software.torch, known(machine.software.torch_cuda, None)
    if isinstance(version, Unknown) or not version:
        return "unknown" if version is not None else "not installed here"
    return f"{version} · {f'CUDA {cuda}' if cuda else 'without CUDA'}"


def _driver(machine: Machine) -> str:
    version, cuda = known(machine.driver.version, None), known(machine.driver.cuda, None)
    return f"{version} · CUDA up to {cuda}" if version and cuda else version or str(known(machine.driver.state, "unknown"))


def _links(machine: Machine) -> tuple[Field, ...]:
    if len(machine.gpus) < 2 or not machine.links:
        return ()
    width = max(len(cell) for line in machine.links for cell in line) + 1
    numbers = "".join(f"{n:>{width}}" for n in range(len(machine.links)))
    lines = [_info(f"links.{n}", f"{n}", "".join(f"{cell:>{width}}" for cell in line)) for n, line in enumerate(machine.links)]
    return (_info("links", "", numbers, "Links, as nvidia-smi topo -m names them"), *lines)
