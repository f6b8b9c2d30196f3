"""Hardware by name: the catalogue of GPUs, and a Machine made from names (`--gpu 8xH100-80 --nodes 4 --link ib-400`).

`data/gpus.json` has one entry per GPU with the source of each figure, and the figures without a source. A GPU of a probed Machine is found
by NVML's name, a typed one by its short name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dstui.base.text import similar_words
from dstui.base.user_error import UserError
from dstui.machine.snapshot import Gpu, Host, IbPort, Island, Machine, Nic
from dstui.plan import Plan

DATA = Path(__file__).parent / "data" / "gpus.json"
UNITS = {"memory": 1 << 20, "bf16": 1e12, "fp16": 1e12, "fp32": 1e12, "bandwidth": 1e9, "nvlink": 1e9, "matmul": 1e12, "matmul32": 1e12}
"""The units of the numbers in the file."""
MAX_GPUS, MAX_NODES = 64, 16_384


class HardwareProblem(UserError, ValueError):
    """An invalid name or number of hardware. Its sentence names the valid ones."""


class Chip(NamedTuple):
    """One GPU of the catalogue. Rates are per second: dense matrix operations by type, bytes of memory, bytes of NVLink one way."""

    name: str
    match: str
    memory: int
    """Bytes, as NVML reports them."""
    bandwidth: float
    bf16: float
    fp16: float
    fp32: float
    nvlink: float
    pcie: int
    """The generation of PCIe."""
    generation: str
    source: str
    """The sources of the figures, by name."""
    unverified: str
    """The figures without a source, by name."""
    matmul: float = 0.0
    """The best 16-bit matrix multiplication that was measured on such a card; 0 = none was found."""
    matmul32: float = 0.0
    """The same in 32 bits, without TF32."""


@cache
def chips() -> tuple[Chip, ...]:
    """Return the catalogue, in the order in which names are matched."""
    rows = json.loads(DATA.read_bytes())["gpus"]
    return tuple(Chip(**{key: value * UNITS[key] if key in UNITS else value for key, value in row.items()}) for row in rows)


@cache
def chip_of(name: str) -> Chip | None:
    """Return the GPU with this name from a driver or a named machine; None if it is not in the catalogue."""
    return next((chip for chip in chips() if chip.name == name or re.search(chip.match, name)), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|gb$|nvidia|tesla|geforce|sxm\d?", "", name.lower())


def named_chip(name: str) -> Chip:
    """Return the GPU with this typed name. Raises HardwareProblem with the nearest names."""
    plain = {_plain(chip.name): chip for chip in chips()}
    wanted = _plain(name)
    if wanted in plain:
        return plain[wanted]
    longer = [key for key in plain if wanted and key.startswith(wanted) and not key[len(wanted) :].startswith(("pcie", "nvl"))]
    if len(longer) == 1:
        return plain[longer[0]]
    near = longer or similar_words(wanted, plain, 3, 0.5)
    hint = f"did you mean {' or '.join(plain[key].name for key in near)}?" if near else "known are " + ", ".join(c.name for c in chips())
    raise HardwareProblem(f"there is no known GPU {name[:60]!r}: {hint}")


class Link(NamedTuple):
    """The network between nodes: the adapters of a node, and Gbit/s of each."""

    kind: str
    adapters: int
    gbps: float


LINK = re.compile(r"(ib|roce|efa|eth)-(?:(\d{1,2})x)?(\d{1,4})", re.I)


def link_of(text: str, gpus: int) -> Link:
    """Return the network that `ib-400`, `eth-25` or `ib-8x200` names. InfiniBand has an adapter per GPU unless a number is given."""
    match = LINK.fullmatch(text.strip())
    if match is None or not int(match[3]) or match[2] == "0":
        hint = "write ib-400 (an adapter of 400 Gbit/s for each GPU), ib-1x200 or eth-25 (for a node)"
        raise HardwareProblem(f"{text[:60]!r} is not a network: {hint}")
    kind = match[1].lower()
    return Link(kind, int(match[2]) if match[2] else gpus if kind == "ib" else 1, float(match[3]))


def named_machine(gpus: str, nodes: int = 1, link: str | None = None, ram: int | None = None) -> Machine:
    """Return the Machine that `8xH100-80` names. RAM, CPUs and disks are unknown unless they are given."""
    match = re.fullmatch(r"\s*(?:(\d{1,6})\s*[x*]\s*)?(\S.*?)\s*", gpus)
    count = int(match[1] or 1) if match else 0
    if match is None or not 1 <= count <= MAX_GPUS:
        raise HardwareProblem(f"{gpus[:60]!r}: write how many GPUs a node has and which, such as 8xH100-80 (1 to {MAX_GPUS})")
    if not 1 <= nodes <= MAX_NODES:
        raise HardwareProblem(f"{nodes} nodes: write 1 to {MAX_NODES:,}")
    chip = named_chip(match[2])
    network = link_of(link, count) if link else None
    one = Gpu(index=0, name=chip.name, memory_total=chip.memory, memory_used=0, memory_reserved=0, pcie_generation_max=chip.pcie)
    every = tuple(range(count))
    joined = chip.nvlink and count > 1
    island = Island(gpus=every, kind="NVSwitch", cliques=(every,), bandwidth=int(chip.nvlink / 1e6))
    source = f"{count} x {chip.name} a node"
    source += f", {network.adapters} x {network.gbps:g} Gbit/s between the nodes ({network.kind})" if network else ""
    if guessed := {"bandwidth", "bf16"} & set(chip.unverified.split(", ")):
        source += f"; no published source was found for its {' and '.join(sorted(guessed))}, on which the speed depends"
    on_node = tuple(replace(one, index=i) for i in every)
    return Machine(source=source, recorded=True, gpus=on_node, islands=(island,) if joined else (), host=_host(network, ram))


def _host(network: Link | None, ram: int | None) -> Host:
    facts: dict[str, object] = {"memory_total": ram, "memory_available": ram, "memory_limit": None} if ram else {}
    if network and network.kind == "ib":
        facts["infiniband"] = tuple(
            IbPort(device=f"mlx5_{i}", port=1, state="ACTIVE", gbps=network.gbps, link_layer="InfiniBand") for i in range(network.adapters)
        )
    elif network:
        facts["nics"] = (Nic(name=network.kind, state="up", speed=int(network.gbps * network.adapters * 1000)),)
    return Host(**facts)  # type: ignore[arg-type]


PLACES = ("hostfile", "num_nodes", "num_gpus", "include", "exclude", "cpu_ranks", "slurm")


def placed(plan: Plan, machine: Machine, nodes: int = 1) -> Plan:
    """Return the Plan on `nodes` nodes of a named Machine, ignoring its own hosts."""
    cluster: Mapping[str, object] = plan.data.get("cluster") or {}
    for key in (*PLACES, "hosts"):
        if key in cluster:
            plan = plan.unset(f"cluster.{key}")
    return plan.set("cluster.hosts", {f"node-{i + 1}": len(machine.gpus) for i in range(nodes)}) if nodes > 1 else plan
