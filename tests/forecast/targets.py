"""Recorded machines and Plans for forecasts."""

from __future__ import annotations

from typing import Any

from dstui.forecast.model import ModelFacts, facts_of_config
from dstui.forecast.presets import presets
from dstui.machine.snapshot import GIB, Disk, Gpu, Host, IbPort, Island, Machine
from dstui.plan import Plan, load

GB = 1 << 30
MIB = 1 << 20


def machine(
    name: str,
    count: int,
    memory: float,
    *,
    islands: tuple[tuple[int, ...], ...] = (),
    links: int = 0,
    ram: int = 256,
    cores: int = 32,
    **more: Any,
) -> Machine:
    """Return a machine with GPUs of one kind. `links`: NVLinks of 25 GB/s between the GPUs of an island; `memory` in GiB."""
    pcie = more.pop("pcie", 4)
    gpus = tuple(
        Gpu(index=i, name=name, memory_total=int(memory * GIB), memory_used=0, pcie_generation_max=pcie, pcie_width_max=16)
        for i in range(count)
    )
    joined = tuple(Island(gpus=g, kind="NVSwitch", cliques=(g,), width=(links, links), bandwidth=links * 25_000) for g in islands)
    host = Host(memory_total=ram * GIB, memory_available=ram * GIB, memory_limit=None, cores_usable=cores, cpus_usable=2 * cores, **more)
    return Machine(source="a recorded machine", gpus=gpus, islands=joined, host=host)


EIGHT = (tuple(range(8)),)
RAILS = tuple(IbPort(device=f"mlx5_{i}", port=1, state="ACTIVE", gbps=200.0, link_layer="InfiniBand") for i in range(8))
NVME = (Disk(mount="/local_nvme", filesystem="xfs", free=3000 * GB, total=3500 * GB, nvme=True),)
ONE_4090 = machine("NVIDIA GeForce RTX 4090", 1, 23.99, ram=64, cores=16)
TWO_4090 = machine("NVIDIA GeForce RTX 4090", 2, 23.99, ram=128, cores=16)
FOUR_A100 = machine("NVIDIA A100 80GB PCIe", 4, 80, islands=((0, 1), (2, 3)), links=12, ram=512, cores=64)
EIGHT_H100 = machine("NVIDIA H100 80GB HBM3", 8, 79.6, islands=EIGHT, links=18, ram=2000, cores=96, pcie=5, disks=NVME)
TWO_NODES = machine("NVIDIA A100-SXM4-80GB", 8, 80, islands=EIGHT, links=12, ram=1000, cores=64, infiniband=RAILS)
EIGHT_H200 = machine("NVIDIA H200", 8, 140, islands=EIGHT, links=18, ram=2000, cores=96, pcie=5)
NO_GPU = Machine(
    source="a recorded machine",
    host=Host(memory_total=64 * GB, memory_available=60 * GB, memory_limit=None, cpus_usable=16, cores_usable=8),
)

PLAN = """\
version: 1
name: demo
job: {{script: train.py, args: [--deepspeed, "{{ds_config}}"]}}
model: {{source: {model}, sequence_length: {sequence}}}
cluster: {cluster}
deepspeed:
  train_micro_batch_size_per_gpu: {micro}
  gradient_accumulation_steps: {steps}
  bf16: {{enabled: true}}
  zero_optimization: {{stage: {stage}}}   # the wizard's
  optimizer: {{type: AdamW, params: {{lr: 1e-4}}}}
"""


def plan(
    model: str = "meta-llama/Llama-2-7b-hf",
    *,
    stage: int = 2,
    micro: int = 1,
    steps: int = 1,
    sequence: int = 2048,
    nodes: int = 1,
    **sets: Any,
) -> Plan:
    """Return a Plan; `sets` are dotted paths with __ for each dot, below deepspeed or model."""
    cluster = "{}" if nodes == 1 else "{hosts: {" + ", ".join(f"node-{i}: 8" for i in range(nodes)) + "}}"
    made = load(PLAN.format(model=model, sequence=sequence, cluster=cluster, micro=micro, steps=steps, stage=stage))
    for path, value in sets.items():
        made = made.set(path.replace("__", "."), value)
    return made


def facts(model: str = "meta-llama/Llama-2-7b-hf") -> ModelFacts:
    """Return the facts about a model that is included in dstui."""
    return facts_of_config(presets()[model], "a preset")
