"""The speed of a Machine as a few rates, from a table of published constants or from the measurements of `--calibrate` on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from dstui.base.dataclass import dataclass
from dstui.forecast.corrections import NO_CORRECTION, Correction, correction_of, is_number
from dstui.forecast.hardware import Chip, chip_of, named_chip
from dstui.machine.snapshot import Gpu, Machine, known


class PeakShares(NamedTuple):
    """Shares of the peak in a data sheet."""

    matrix: float
    """The best matrix multiplication, as a share of the peak. Source: github.com/stas00/ml-engineering, compute/accelerator/README.md."""
    sustained: float
    """The share of `matrix` that the linear layers of a transformer sustain over hours, at the clock that the power limit allows."""
    attention: float
    """Fused attention with a causal mask, forward and backward, by FlashAttention-2 or PyTorch's own (SDPA)."""


REACH: Mapping[str, PeakShares] = {
    "ampere": PeakShares(0.87, 0.925, 0.55),
    "hopper": PeakShares(0.80, 0.865, 0.31),
    "hopper_cut": PeakShares(0.95, 1.0, 0.85),
    "blackwell": PeakShares(0.78, 0.65, 0.55),
    "ada": PeakShares(0.85, 0.83, 0.3),
    "geforce": PeakShares(1.07, 1.0, 0.65),
    "volta": PeakShares(0.80, 0.83, 0.2),
    "cdna": PeakShares(0.51, 0.9, 0.15),
}
"""By generation. `sustained` and `attention` of Ampere and Hopper are fitted to the rows of tests/forecast/published_speed.csv that are
marked for it, those of Blackwell chosen by its rows there; the others are those of the nearest generation. GeForce cards accumulate in 32
bits at half of their rate, so the power limit does not slow that down, and attention, whose other operations are not halved, reaches twice
Ampere's share of it; they boost beyond the clock of their data sheets: PyTorch reaches 1.04 to 1.15 of it on RTX 3090, 4070 SUPER, 4090 and
5090 (github.com/zzc0721/torch-performance-test-data, database.md). Cards with a measured multiplication in the catalogue use that instead.
H20 has Hopper's memory and power with a seventh of its matrix units, which are never throttled: 89 % of its peak in Qwen2.5-7B with 16k
tokens (ms-swift, examples/train/flash_attention_3). FlashAttention-2 on Ampere and Hopper: its own figures, and ALST's steps of 0.2 to 3.7
million tokens (arxiv.org/abs/2506.13996, table 1)."""
NEWEST_ATTENTION: Mapping[str, float] = {"hopper": 0.55}
"""The same share of FlashAttention-3, where a Plan names it: arxiv.org/abs/2407.08608 (heads of 128, causal, both passes); 447 TFLOPS of
6 operations in a step of 8k tokens on H200 (stas00/ml-engineering, insights/when-to-upgrade-gpus)."""
BY_CAPABILITY: Mapping[int, str] = {10: "B200", 9: "H100-PCIe", 8: "A40", 7: "V100-16"}
"""The chip that replaces one that is missing in the catalogue, by compute capability; the forecast mentions it."""
COLLECTIVE_SHARE = 0.79
"""The share of NVLink's rate that collectives of large buffers reach: 235 of 300 GB/s (A100), 361 of 450 (H200). Same source, network/."""
PCIE_BYTES: Mapping[int, float] = {1: 3e9, 2: 6e9, 3: 12e9, 4: 25e9, 5: 55e9, 6: 100e9}
"""Bytes per second in one direction over 16 lanes with pinned memory, by PCIe generation; 55.4 GB/s were measured on generation 5. Same
source."""
PCIE_COLLECTIVE = 0.4
"""The share of PCIE_BYTES that collectives reach if the GPUs share host bridges."""
WITHOUT_PEERS = 20e9
"""Bytes per second that the ranks of a node share if their GPUs cannot read each other's memory over PCIe (GeForce), so that collectives go
through RAM: 2.4 to 2.7 GB/s for each of 8 x RTX 3090 (LOMO, arxiv.org/abs/2306.09782, table 2)."""
C2C_BYTES = 350e9
"""Bytes per second between Grace and Hopper; the peak is 450 GB/s in each direction."""
CPU_ADAM_OF_CORE = 0.3e9
"""Parameters per second that DeepSpeedCPUAdam updates on one core (0.79e9 alone, less if other cores work too)."""
CPU_ADAM, OLDER_CPU_ADAM = 3.9e9, 1.3e9
"""The limit on a node, which is set by its RAM; the second is for PCIe 4 or older. The median of five sizes in ZeRO-Offload
(arxiv.org/abs/2101.06840, table 4) is 3.9; steps on 8 x H200 and 8 x B200 give 4.1 (stas00/ml-engineering). Hosts with PCIe 3 and 4 differ
by a factor of ten: 3.9 (ZeRO-Offload's), 1 to 1.5 (2 x A100-40, DeepSpeed #7474 and blogs/zenflow-corebinding), 0.4 (8 x A800,
gist.github.com/chenyaofo); their geometric mean is taken."""
NVME_READ, NVME_WRITE = 3e9, 2e9
"""Bytes per second of one consumer drive. deepspeed.ai, DeepNVMe: 10 / 5 GB/s for four drives of generation 4."""
NETWORK = 12.5e9
"""Bytes per second between nodes if the Machine has no known adapter: 100 Gbit/s."""
NETWORK_SHARE = 0.75
PASS_SECONDS, ADAPTED_PASS, COMPILED_PASS = 1.0e-3, 1.6, 0.3
"""Seconds in which Python starts the kernels of one pass of a layer, and the factors with LoRA and if they are fused. Steps of LoRA with
256 tokens, recomputed, took 4.7 to 5.2 ms per layer and micro-batch in 1.8B, 7B and 14B on A100, whatever their width (Qwen's README)."""
HOOK_SECONDS: Sequence[float] = (0.0, 0.5e-3, 3.0e-3, 7.0e-3)
"""Seconds per layer and micro-batch of DeepSpeed's hooks, by stage, while kernels may run. Measured: 1 to 2 ms at stage 2 (OpenTau #177)
and 6 ms (blogs/zenflow-corebinding, 1.5B); 8 ms at stage 3 (1.8B with 256 tokens in Qwen's README), and at most 12 ms with all passes on
4 x H100 with 512 tokens (DeepSpeedExamples, training/bf16_master_weight)."""
STALL_SECONDS = 3.0e-3
"""Seconds per layer in which stage 3 waits for its hooks and no kernel runs: 19.7k to 14.6k tokens/s on 4 x GH200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The speed of one rank, or one node, per second. Bytes are one way."""

    flops: float = 0.0
    """Matrix operations of a GPU in 16 bits; 0 = unknown."""
    slow_flops: float = 0.0
    """Matrix operations of a GPU in 32 bits; 0 = unknown."""
    sustained: float = 0.85
    """The share of either rate that the layers of a transformer reach."""
    attention: float = 0.0
    """Operations of fused attention; 0 = unknown, so the ratio of an A100 is used."""
    newest_attention: float = 0.0
    """Operations of attention with the newest FlashAttention, if the Plan names no release; 0 = the same as `attention`."""
    memory: float = 1e12
    """Bytes of a GPU's own memory."""
    inside: float = 10e9
    """Bytes of a collective within a node."""
    between: float = NETWORK
    """Bytes of a collective that a node exchanges with others."""
    network_known: bool = True
    """True if `between` is that of a known network."""
    host_link: float = 25e9
    """Bytes between a GPU and RAM."""
    cpu_adam: float = 1e9
    """Parameters that the CPUs of a node update."""
    nvme_read: float = NVME_READ
    nvme_write: float = NVME_WRITE
    correction: Correction = NO_CORRECTION
    measured: tuple[str, ...] = ()
    """The rates that were measured on this machine."""
    unknown: tuple[str, ...] = ()
    """Assumptions, as sentences."""


_latest: tuple[Machine, object, Rates] | None = None


def rates_of(machine: Machine, gpus: Sequence[int], nodes: int = 1, *, half: bool = False, attention: str = "") -> Rates:
    """Return the rates of a machine for ranks on these of its GPUs, each node being alike.

    `half`: they compute in fp16, not bf16; `attention`: what the Plan says of it. The latest result is kept: most edits change
    none of these.
    """
    global _latest  # noqa: PLW0603 - one value, replaced as a whole
    asked = (tuple(gpus), nodes, half, attention)
    if _latest is None or _latest[0] is not machine or _latest[1] != asked:
        _latest = (machine, asked, _rates_of(machine, gpus, nodes, half, attention))
    return _latest[2]


def _rates_of(machine: Machine, gpus: Sequence[int], nodes: int, half: bool, attention: str) -> Rates:
    used = [gpu for gpu in machine.gpus if gpu.index in set(gpus) and gpu.problem is None]
    if not used:
        return Rates(unknown=("without a known GPU the speed is unknown",))
    reported: list[str] = []
    chip = min((_chip(gpu, reported) for gpu in used), key=lambda c: c.bf16)
    reach = REACH[chip.generation]
    peak = chip.fp16 if half else chip.bf16
    newest = peak * NEWEST_ATTENTION.get(chip.generation, reach.attention)
    links = [_host_link(gpu) for gpu in used]
    network = _network(machine) if nodes > 1 else NETWORK
    if network is None:
        reported.append("the network between the nodes is not known: 100 Gbit/s is assumed")
    cores = known(machine.host.cores_usable, known(machine.host.cpus_usable, 16))
    drives = sum(1 for disk in known(machine.host.disks, ()) if known(disk.nvme, False))
    return Rates(
        flops=chip.matmul or peak * reach.matrix,
        slow_flops=chip.matmul32 or chip.fp32 * reach.matrix,
        sustained=1.0 if chip.matmul else reach.sustained,
        attention=newest if attention == "flash3" else peak * reach.attention,
        newest_attention=0.0 if attention in ("flash3", "eager") else newest,
        memory=chip.bandwidth,
        inside=min(_inside(machine, used, min(links)), WITHOUT_PEERS / len(used) if chip.generation == "geforce" else math.inf),
        between=network or NETWORK * NETWORK_SHARE,
        network_known=network is not None,
        host_link=min(links),
        cpu_adam=min(cores * CPU_ADAM_OF_CORE, CPU_ADAM if min(links) > PCIE_BYTES[4] else OLDER_CPU_ADAM),
        nvme_read=NVME_READ * max(drives, 1),
        nvme_write=NVME_WRITE * max(drives, 1),
        unknown=tuple(dict.fromkeys(reported)),
    )


def _chip(gpu: Gpu, reported: list[str]) -> Chip:
    name = known(gpu.name, "")
    found = chip_of(name)
    if found is None:
        capability = known(gpu.compute_capability, "8.0").partition(".")[0]
        stand_in = BY_CAPABILITY.get(int(capability) if capability.isdecimal() else 8, BY_CAPABILITY[8])
        found = named_chip(stand_in)
        reported.append(f"{name or 'this GPU'} is not in the catalogue of GPUs: the speed of {stand_in} is assumed")
    return found


def _host_link(gpu: Gpu) -> float:
    if known(gpu.c2c, False):
        return C2C_BYTES
    generation, width = known(gpu.pcie_generation_max, 4), known(gpu.pcie_width_max, 16)
    return PCIE_BYTES.get(generation, PCIE_BYTES[4]) * max(width, 1) / 16


def _inside(machine: Machine, used: Sequence[Gpu], host_link: float) -> float:
    """Return the rate of collectives: NVLink's if one island has all ranks, else PCIe's."""
    island = machine.island_of(used[0].index)
    if len(used) == 1:
        return island_rate(machine, used[0])
    if all(gpu.index in island.gpus for gpu in used):
        return island_rate(machine, used[0])
    return host_link * PCIE_COLLECTIVE


def island_rate(machine: Machine, gpu: Gpu) -> float:
    """Return bytes per second of collectives over a GPU's NVLinks, from its island's bandwidth or its links."""
    island = machine.island_of(gpu.index)
    if isinstance(island.bandwidth, int) and island.bandwidth:
        return island.bandwidth * 1e6 * COLLECTIVE_SHARE
    per_link = 25e9
    width = island.width[0] if island.width else 0
    if width:
        return width * per_link * COLLECTIVE_SHARE
    return _host_link(gpu) * PCIE_COLLECTIVE


def _network(machine: Machine) -> float | None:
    """Return the bytes per second that a node exchanges with others; None if its network is not known."""
    adapters = [known(port.gbps, 0.0) for port in known(machine.host.infiniband, ()) if port.state == "ACTIVE"]
    if total := sum(adapters):
        return total / 8 * 1e9 * NETWORK_SHARE
    ethernet = [known(nic.speed, 0) for nic in known(machine.host.nics, ()) if not nic.virtual and known(nic.speed, 0) > 0]
    return max(ethernet) / 8 * 1e6 * NETWORK_SHARE if ethernet else None


def with_measured(rates: Rates, measured: Mapping[str, Any]) -> Rates:
    """Return the rates with the constants replaced by measurements of `--calibrate` and of runs. Invalid values are ignored."""
    if not measured:
        return rates
    names = {f.name for f in fields(Rates)} - {"measured", "unknown", "correction", "network_known"}
    good: dict[str, Any] = {
        name: float(value) for name, value in measured.items() if name in names and is_number(value) and 1e3 < value < 1e18
    }
    correction = correction_of(measured)
    if not good and correction == NO_CORRECTION:
        return rates
    doubt = correction.doubt
    return replace(
        rates,
        **good,
        correction=correction,
        measured=tuple(sorted(good)),
        unknown=(*rates.unknown, doubt) if doubt else rates.unknown,
    )
