"""Step 1: what is there, and which of it is used."""

from __future__ import annotations

from typing import Any

from dstui.machine.snapshot import GIB, Gpu, Machine, Unknown, known
from dstui.tui.fields import UNSET, Edit, Field
from dstui.tui.state import State
from dstui.tui.steps.step import Step

INCLUDE, CPU_RANKS = "cluster.include", "cluster.cpu_ranks"


def picked(state: State) -> frozenset[int]:
    """The GPUs of this machine that the Plan's include leaves in; all where it says nothing of this machine."""
    everything = frozenset(g.index for g in state.machine.gpus)
    include = state.plan.get(INCLUDE, None)
    if not isinstance(include, str):
        return everything
    host, _, slots = include.partition(":")
    if host != "localhost" or "@" in include:
        return everything
    return frozenset(int(s) for s in slots.split(",") if s.isdecimal()) if slots else everything


def _pick(gpu: int) -> Any:
    def write(state: State, use: bool) -> tuple[Edit, ...]:
        chosen = picked(state) | {gpu} if use else picked(state) - {gpu}
        everything = {g.index for g in state.machine.gpus}
        return ((INCLUDE, UNSET if chosen >= everything or not chosen else f"localhost:{','.join(map(str, sorted(chosen)))}"),)

    return write


def _barred(gpu: Gpu) -> Any:
    def barred(state: State) -> str:
        if gpu.problem:
            return gpu.problem
        if state.plan.cluster.hosts or state.plan.cluster.hostfile:
            return "other hosts are given: choose in step 7"
        return "the last one: use at least one" if picked(state) == {gpu.index} else ""

    return barred


def bar(part: float, cells: int = 8) -> str:
    """A share of 0 to 1 as filled and empty cells."""
    full = round(min(max(part, 0.0), 1.0) * cells)
    return "█" * full + "░" * (cells - full)


def _gpu_line(gpu: Gpu) -> str:
    total, used = known(gpu.memory_total, 0), known(gpu.memory_used, 0)
    memory = f"{bar(used / total)} {used / GIB:.0f}/{total / GIB:.0f} GB" if total else "memory unknown"
    busy = f"  {gpu.utilization} %" if isinstance(gpu.utilization, int) else ""
    return memory + busy


def _gpu_field(gpu: Gpu) -> Field:
    return Field(
        path=f"gpu.{gpu.index}",
        owns=(INCLUDE,) if gpu.index == 0 else (),
        label=f"{gpu.index}  {gpu.short_name}",
        kind="toggle",
        title="GPUs to use" if gpu.index == 0 else "",
        barred=_barred(gpu),
        read=lambda state: gpu.index in picked(state),
        write=_pick(gpu.index),
        says=lambda _state: _gpu_line(gpu),
    )


def _no_gpu(state: State) -> str:
    return "hosts are given: they count" if state.plan.cluster.hosts or state.plan.cluster.hostfile else ""


def _cpu_field(state: State) -> Field:
    title = "No GPU here" if state.probed else "Without a GPU"
    return Field(path=CPU_RANKS, label="Ranks on the CPU", kind="number", barred=_no_gpu, title=title)


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


def _fields(state: State) -> tuple[Field, ...]:
    machine = state.machine
    what = tuple(_gpu_field(g) for g in machine.gpus) or (_cpu_field(state),)
    return (*what, *_links(machine), *(_host(machine) if state.probed else ()))


def _value(state: State) -> str:
    if not state.probed:
        return "looking…"
    gpus = state.machine.gpus
    return f"{len(picked(state))} of {len(gpus)} GPUs" if gpus else f"CPU, {state.ranks or '?'} ranks"


MACHINE = Step(
    id="machine",
    title="Machine",
    question="What is there, and which of it is used?",
    owns=(INCLUDE, CPU_RANKS, "cluster.exclude"),
    fields=_fields,
    value=_value,
)
