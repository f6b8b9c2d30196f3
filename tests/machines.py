"""The machines that tests stand on: recorded ones, made of a few facts. Whatever a test does not name is unknown."""

from __future__ import annotations

from typing import Any

from dstui.machine.snapshot import GIB, Gpu, Host, Machine

A100: dict[str, Any] = {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0"}
"""Facts of a card, for `gpu` and `gpus`."""
NO_GPU = Machine(source="a test", host=Host(cpus_usable=2, cores_usable=2, memory_total=8 * GIB, memory_limit=None))
"""Two cores and 8 GiB of RAM."""


def gpu(index: int = 0, **facts: Any) -> Gpu:
    """An idle H100 with 80 GiB, but for the given facts."""
    known = {"name": "NVIDIA H100 80GB HBM3", "memory_total": 80 * GIB, "memory_used": 0, "compute_capability": "9.0"}
    return Gpu(index=index, **{**known, **facts})


def gpus(count: int, **facts: Any) -> tuple[Gpu, ...]:
    """So many GPUs of one kind."""
    return tuple(gpu(index, **facts) for index in range(count))


def machine(*cards: Gpu, **facts: Any) -> Machine:
    """A recorded machine with these GPUs."""
    return Machine(**{"source": "a test", "gpus": cards, **facts})


def joined(count: int, link: str = "NV12") -> tuple[tuple[str, ...], ...]:
    """The matrix of `nvidia-smi topo -m` where every GPU has such a link to every other."""
    return tuple(tuple("X" if a == b else link for b in range(count)) for a in range(count))
