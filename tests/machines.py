"""Recorded machines for tests, built from a few facts. Facts that a test does not give are unknown."""

from __future__ import annotations

from typing import Any

from dstui.machine.snapshot import GIB, Gpu, Host, Machine

A100: dict[str, Any] = {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0"}
"""Facts of a GPU, for `gpu` and `gpus`."""
NO_GPU = Machine(source="a test", host=Host(cpus_usable=2, cores_usable=2, memory_total=8 * GIB, memory_limit=None))
"""A machine with two cores, 8 GiB of RAM and no GPU."""


def gpu(index: int = 0, **facts: Any) -> Gpu:
    """Return an idle H100 with 80 GiB, changed by the given facts."""
    known = {"name": "NVIDIA H100 80GB HBM3", "memory_total": 80 * GIB, "memory_used": 0, "compute_capability": "9.0"}
    return Gpu(index=index, **{**known, **facts})


def gpus(count: int, **facts: Any) -> tuple[Gpu, ...]:
    """Return `count` GPUs of the same kind."""
    return tuple(gpu(index, **facts) for index in range(count))


def machine(*cards: Gpu, **facts: Any) -> Machine:
    """Return a recorded machine with these GPUs."""
    return Machine(**{"source": "a test", "gpus": cards, **facts})


def joined(count: int, link: str = "NV12") -> tuple[tuple[str, ...], ...]:
    """Return the matrix of `nvidia-smi topo -m` in which every pair of GPUs has the same link."""
    return tuple(tuple("X" if a == b else link for b in range(count)) for a in range(count))
