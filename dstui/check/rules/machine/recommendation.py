"""Recommendations: what a machine's facts mean for a job, each piece with its reason and its source. Pure functions on values.

One piece is one small function, registered with a stable code:

    @machine_rule("MC008", "error", source="nvml.h, nvmlComputeMode_t")
    def prohibited(machine, requirement):
        "A GPU whose compute mode forbids computing."
        yield Recommendations("GPU 1 …", why="…", fix="…", path="…", sets=(("cluster.include", "localhost:0"),))

As few NCCL variables as possible are ever advised: NCCL measures the same facts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dstui.machine.snapshot import Gpu, Machine

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to know or to do. `sets` are the keys of a Plan that do it: dotted path and value."""

    message: str
    why: str = ""
    fix: str = ""
    path: str = ""
    """The key of the Plan that it is about; empty for the machine itself."""
    sets: tuple[tuple[str, Any], ...] = ()
    level: Level | None = None
    """Where it differs from the piece's own."""
    code: str = ""
    """Filled in by `advise.advise`, as is the source."""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a job asks of a machine, as far as recommendations depends on it. The default asks for everything that is there."""

    gpus: tuple[int, ...] | None = None
    """The slots of this machine that are used; None = all."""
    ranks: int | None = None
    """Ranks on one host; None = one for each GPU."""
    filtered: bool = False
    """Whether slots are chosen on the launcher's command line."""
    nodes: int = 1
    cpu: bool = False
    other_python: bool = False
    """Whether the ranks run under another interpreter than the one whose packages the Machine tells."""
    stage: int = 0
    overlap_comm: bool | None = None
    """None where it is not written."""
    offload: str = "none"
    """Where the optimizer's state is kept: none, cpu, nvme."""
    nvme_path: str | None = None
    super_offload: bool = False
    hpz: int = 1
    tensor_parallel: int = 1
    sequence_parallel: int = 1
    buckets: int | None = None
    """Elements in the reduce and the allgather bucket together, where both are written."""
    quantized_weights: bool = False
    accumulation: int = 1
    params: float | None = None
    cpu_binding: str | None = None
    port: int | None = None
    """The port that rank 0 will listen on, where it is one of this machine and was chosen beforehand."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the Plan sets for the ranks."""

    def slots(self, machine: Machine) -> tuple[int, ...]:
        """The GPUs of the machine that are used."""
        there = tuple(gpu.index for gpu in machine.gpus)
        return there if self.gpus is None else tuple(gpu for gpu in sorted(self.gpus) if gpu in there)

    def variables(self, machine: Machine) -> dict[str, str]:
        """What the ranks see: the Plan's variables over those that are set where dstui runs."""
        return {**machine.host.environment, **self.environment}

    def chosen(self, machine: Machine) -> tuple[Gpu, ...]:
        """The same as GPUs."""
        return tuple(machine.gpus[gpu] for gpu in self.slots(machine))


Evaluate = Callable[[Machine, Requirement], Iterator[Recommendation]]


@dataclass(frozen=True, slots=True)
class MachineRule:
    """A registered rule about the machine."""

    code: str
    level: Level
    title: str
    source: str
    evaluate: Evaluate


MACHINE_RULES: dict[str, MachineRule] = {}
"""Every piece by its code."""


def machine_rule(code: str, level: Level, *, source: str) -> Callable[[Evaluate], Evaluate]:
    """Registers a recommendation; the function's docstring is its title."""

    def register(evaluate: Evaluate) -> Evaluate:
        if code in MACHINE_RULES:
            raise ValueError(f"the code {code} is taken by {MACHINE_RULES[code].evaluate.__name__}")
        MACHINE_RULES[code] = MachineRule(code, level, (evaluate.__doc__ or "").splitlines()[0], source, evaluate)
        return evaluate

    return register
