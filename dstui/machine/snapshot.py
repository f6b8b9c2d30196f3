"""The Machine: a plain snapshot of GPUs, links, host and software, with a JSON form.

Bytes are bytes, power is in watts, temperature in degrees Celsius, bandwidth in MB/s one way, utilisation in percent.
Every field that has to be looked up may be Unknown, with the reason: "unknown, because" is a value here, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dstui.machine.codec import Maybe, Unknown, decode, encode, known

__all__ = ["Disk", "Driver", "Fabric", "Gpu", "GpuProcess", "Host", "IbPort", "Island", "Machine", "MigDevice", "Nic", "NumaNode", "NvLink"]
__all__ += ["PciGpu", "Software", "Unknown", "known"]

NOT_ASKED = Unknown("nobody looked")
LEFT_OUT = Unknown("left out unless asked for")
GIB = 1 << 30

Kind = Literal["single", "NVSwitch", "pair", "mesh", "ring", "hybrid cube mesh", "partial mesh"]
Matrix = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """Somebody's process on a GPU. Inside a container the pid is the host's, and usually the list is empty."""

    pid: int
    name: Maybe[str] = NOT_ASKED
    memory: Maybe[int] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One slice of a GPU in MIG mode: its own device for CUDA, without NVLink."""

    uuid: Maybe[str] = NOT_ASKED
    name: Maybe[str] = NOT_ASKED
    memory_total: Maybe[int] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """A GPU's NVLinks: how many it has, how many are up, and where they lead."""

    count: Maybe[int] = NOT_ASKED
    active: Maybe[int] = NOT_ASKED
    switched: int = 0
    """Active links that end in an NVSwitch (or in something invisible, which is one)."""
    peers: Mapping[str, int] = field(default_factory=dict)
    """Bus id of a directly joined GPU -> number of active links to it."""
    version: Maybe[str] = NOT_ASKED
    speed: Maybe[int] = NOT_ASKED
    """MB/s of one link, one way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What the NVSwitch fabric says of a GPU. Two GPUs of one NVL domain have the same non-zero cluster and clique."""

    state: Maybe[str] = NOT_ASKED
    """not supported, not started, in progress, completed"""
    status: Maybe[int] = NOT_ASKED
    cluster: Maybe[str] = NOT_ASKED
    clique: Maybe[int] = NOT_ASKED
    health: Maybe[int] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, as NVML numbers them (nvidia-smi's order)."""

    index: int
    problem: str | None = None
    """Why this GPU cannot be used at all (lost, no permission, needs a reset)."""
    name: Maybe[str] = NOT_ASKED
    uuid: Maybe[str] = NOT_ASKED
    bus_id: Maybe[str] = NOT_ASKED
    serial: Maybe[str] = LEFT_OUT
    memory_total: Maybe[int] = NOT_ASKED
    memory_used: Maybe[int] = NOT_ASKED
    memory_reserved: Maybe[int] = NOT_ASKED
    utilization: Maybe[int] = NOT_ASKED
    memory_utilization: Maybe[int] = NOT_ASKED
    temperature: Maybe[int] = NOT_ASKED
    power: Maybe[float] = NOT_ASKED
    power_limit: Maybe[float] = NOT_ASKED
    power_limit_default: Maybe[float] = NOT_ASKED
    clock_sm: Maybe[int] = NOT_ASKED
    clock_sm_max: Maybe[int] = NOT_ASKED
    clock_memory: Maybe[int] = NOT_ASKED
    throttle: Maybe[tuple[str, ...]] = NOT_ASKED
    compute_capability: Maybe[str] = NOT_ASKED
    compute_mode: Maybe[str] = NOT_ASKED
    """default, exclusive thread, prohibited, exclusive process"""
    persistence: Maybe[bool] = NOT_ASKED
    ecc: Maybe[bool] = NOT_ASKED
    ecc_pending: Maybe[bool] = NOT_ASKED
    memory_errors: Maybe[int] = NOT_ASKED
    """Uncorrected errors of its memory since the driver was loaded."""
    remap_pending: Maybe[bool] = NOT_ASKED
    """Whether rows of its memory wait for a reset to be replaced, or could not be."""
    mig: Maybe[bool] = NOT_ASKED
    mig_pending: Maybe[bool] = NOT_ASKED
    mig_devices: tuple[MigDevice, ...] = ()
    pcie_generation: Maybe[int] = NOT_ASKED
    pcie_generation_max: Maybe[int] = NOT_ASKED
    pcie_width: Maybe[int] = NOT_ASKED
    pcie_width_max: Maybe[int] = NOT_ASKED
    numa_node: Maybe[int] = NOT_ASKED
    """The node of the CPUs next to it."""
    cpus: Maybe[str] = NOT_ASKED
    """The CPUs next to it, as a list like 0-15,32-47."""
    memory_node: Maybe[int] = NOT_ASKED
    """The NUMA node that is this GPU's own memory (GH200, GB200); nothing may be bound to it."""
    module_id: Maybe[int] = NOT_ASKED
    virtualization: Maybe[str] = NOT_ASKED
    addressing: Maybe[str] = NOT_ASKED
    c2c: Maybe[bool] = NOT_ASKED
    c2c_bandwidth: Maybe[int] = NOT_ASKED
    nvlink: Maybe[NvLink] = NOT_ASKED
    fabric: Maybe[Fabric] = NOT_ASKED
    processes: Maybe[tuple[GpuProcess, ...]] = NOT_ASKED

    @property
    def short_name(self) -> str:
        """The name without maker and form factor, with the memory where the name leaves it out: `H100 80GB`, `RTX 3090 24GB`."""
        name = re.sub(r"\b(NVIDIA|Tesla|GeForce|Graphics Device|PCIe|HBM\d\w*|SXM\d*)\b|-SXM\d*|-PCI[eE]", "", known(self.name, "GPU"))
        name = re.sub(r"[\s-]+(?=\s|$)|(?<=\s)-+", " ", name).replace("-", " ").strip() or "GPU"
        name = re.sub(r"\s+", " ", name)
        if not re.search(r"\d\s?GB\b", name) and isinstance(self.memory_total, int):
            name += f" {round(self.memory_total / GIB)}GB"
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """GPUs joined by working NVLink, directly or through each other; a GPU without any is an island of its own."""

    gpus: tuple[int, ...]
    kind: Kind = "single"
    cliques: tuple[tuple[int, ...], ...] = ()
    """The largest sets within it in which every pair is joined, the widest first: where tensor parallelism may live."""
    width: tuple[int, int] | None = None
    """Least and greatest number of links between two joined GPUs."""
    bandwidth: Maybe[int] = NOT_ASKED
    """MB/s one way between the two worst joined GPUs."""

    @property
    def clique(self) -> tuple[int, ...]:
        """The best of its largest cliques."""
        return self.cliques[0] if self.cliques else self.gpus[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """NVIDIA's driver: what NVML says, and what the kernel says where NVML is silent."""

    state: Maybe[str] = NOT_ASKED
    """ok, or why NVML did not start"""
    version: Maybe[str] = NOT_ASKED
    nvml: Maybe[str] = NOT_ASKED
    cuda: Maybe[str] = NOT_ASKED
    """The newest CUDA that this driver runs, not the toolkit's version."""
    confidential_compute: Maybe[bool] = NOT_ASKED
    kernel_module: Maybe[str] = NOT_ASKED
    open_module: Maybe[bool] = NOT_ASKED
    modules: Maybe[tuple[str, ...]] = NOT_ASKED
    device_nodes: Maybe[tuple[str, ...]] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node; without CPUs it is the memory of a GPU."""

    id: int
    cpus: str = ""
    memory: Maybe[int] = NOT_ASKED
    distances: Maybe[tuple[int, ...]] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A mounted file system, and what is known of the device under it."""

    mount: str
    filesystem: str
    device: Maybe[str] = NOT_ASKED
    total: Maybe[int] = NOT_ASKED
    free: Maybe[int] = NOT_ASKED
    local: bool = True
    read_only: bool = False
    nvme: Maybe[bool] = NOT_ASKED
    model: Maybe[str] = NOT_ASKED
    numa_node: Maybe[int] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network interface."""

    name: str
    state: Maybe[str] = NOT_ASKED
    speed: Maybe[int] = NOT_ASKED
    """Mbit/s; unknown for an interface that is down or virtual."""
    mtu: Maybe[int] = NOT_ASKED
    virtual: bool = False
    wireless: bool = False
    default_route: bool = False
    numa_node: Maybe[int] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class IbPort:
    """A port of an RDMA adapter: InfiniBand, or RoCE where the link layer is Ethernet."""

    device: str
    port: int
    state: Maybe[str] = NOT_ASKED
    gbps: Maybe[float] = NOT_ASKED
    link_layer: Maybe[str] = NOT_ASKED
    numa_node: Maybe[int] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu:
    """A GPU as the PCI bus shows it, also without a driver."""

    bus_id: str
    numa_node: Maybe[int] = NOT_ASKED
    cpus: Maybe[str] = NOT_ASKED
    driver: Maybe[str] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The computer around the GPUs, as far as this process may use it."""

    name: Maybe[str] = NOT_ASKED
    system: Maybe[str] = NOT_ASKED
    kernel: Maybe[str] = NOT_ASKED
    cpu: Maybe[str] = NOT_ASKED
    cpu_flags: Maybe[tuple[str, ...]] = NOT_ASKED
    cpus: Maybe[int] = NOT_ASKED
    """Logical CPUs of the machine."""
    cpus_usable: Maybe[int] = NOT_ASKED
    """Those that this process may run on."""
    cpu_set: Maybe[str] = NOT_ASKED
    cores: Maybe[int] = NOT_ASKED
    """Physical cores of the machine."""
    cores_usable: Maybe[int] = NOT_ASKED
    """Physical cores among the CPUs that may be used."""
    core_groups: Maybe[tuple[str, ...]] = NOT_ASKED
    """The hardware threads of each usable core: ("0,32", "1,33")."""
    cpu_quota: Maybe[float | None] = NOT_ASKED
    """CPUs' worth of time that the cgroup grants; null = no quota."""
    memory_total: Maybe[int] = NOT_ASKED
    memory_available: Maybe[int] = NOT_ASKED
    memory_limit: Maybe[int | None] = NOT_ASKED
    """The cgroup's limit; null = none."""
    memory_limit_used: Maybe[int] = NOT_ASKED
    swap_free: Maybe[int] = NOT_ASKED
    shm_total: Maybe[int] = NOT_ASKED
    shm_free: Maybe[int] = NOT_ASKED
    memlock: Maybe[int | None] = NOT_ASKED
    """Bytes that a process may pin; null = no limit. Ranks on another host have that host's limit."""
    nofile: Maybe[int | None] = NOT_ASKED
    nproc: Maybe[int | None] = NOT_ASKED
    hugepages_total: Maybe[int] = NOT_ASKED
    hugepages_free: Maybe[int] = NOT_ASKED
    hugepage_size: Maybe[int] = NOT_ASKED
    numa: Maybe[tuple[NumaNode, ...]] = NOT_ASKED
    numa_balancing: Maybe[bool] = NOT_ASKED
    disks: Maybe[tuple[Disk, ...]] = NOT_ASKED
    nics: Maybe[tuple[Nic, ...]] = NOT_ASKED
    ports: Maybe[tuple[int, ...]] = NOT_ASKED
    """TCP ports on which somebody listens."""
    infiniband: Maybe[tuple[IbPort, ...]] = NOT_ASKED
    pci_gpus: Maybe[tuple[PciGpu, ...]] = NOT_ASKED
    nvswitches: Maybe[int] = NOT_ASKED
    iommu: Maybe[bool] = NOT_ASKED
    virtual_machine: Maybe[bool] = NOT_ASKED
    container: Maybe[str | None] = NOT_ASKED
    wsl: Maybe[bool] = NOT_ASKED
    scheduler: Maybe[str | None] = NOT_ASKED
    allocation: Mapping[str, str] = field(default_factory=dict)
    """The scheduler's own variables: SLURM_NNODES and the like."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that steer NCCL, CUDA and DeepSpeed, as they are set here."""
    clock: Maybe[float] = NOT_ASKED
    """Seconds since 1970 when the host was looked at, by its own clock."""

    @property
    def memory(self) -> Maybe[int]:
        """The RAM that this process may use: the machine's, or the cgroup's where that is less."""
        if isinstance(self.memory_total, Unknown):
            return self.memory_total
        limit = known(self.memory_limit, None)
        return min(self.memory_total, limit) if limit else self.memory_total


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Versions as their own metadata gives them (null = not installed), and programs by where they are (null = not found)."""

    python: Maybe[str] = NOT_ASKED
    python_path: Maybe[str] = NOT_ASKED
    torch: Maybe[str | None] = NOT_ASKED
    torch_cuda: Maybe[str | None] = NOT_ASKED
    """The CUDA that torch was built for; null = a build without CUDA."""
    torch_hip: Maybe[str | None] = NOT_ASKED
    deepspeed: Maybe[str | None] = NOT_ASKED
    accelerate: Maybe[str | None] = NOT_ASKED
    transformers: Maybe[str | None] = NOT_ASKED
    mpi4py: Maybe[str | None] = NOT_ASKED
    pynvml: Maybe[str | None] = NOT_ASKED
    nccl: Maybe[str | None] = NOT_ASKED
    cuda_home: Maybe[str | None] = NOT_ASKED
    cuda_toolkit: Maybe[str | None] = NOT_ASKED
    nvcc: Maybe[str | None] = NOT_ASKED
    gxx: Maybe[str | None] = NOT_ASKED
    ninja: Maybe[str | None] = NOT_ASKED
    python_headers: Maybe[bool] = NOT_ASKED
    libaio: Maybe[bool] = NOT_ASKED
    libaio_headers: Maybe[bool] = NOT_ASKED
    ssh: Maybe[str | None] = NOT_ASKED
    pdsh: Maybe[str | None] = NOT_ASKED
    mpirun: Maybe[str | None] = NOT_ASKED
    srun: Maybe[str | None] = NOT_ASKED
    numactl: Maybe[str | None] = NOT_ASKED
    fp16: Maybe[bool] = NOT_ASKED
    """Whether DeepSpeed's accelerator for CPUs takes this type here. Asked only where it matters: DeepSpeed is imported for it."""
    bf16: Maybe[bool] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine at one moment. Build it with `probe`, `read_machine` or `Machine.unprobed`."""

    source: str = "nothing looked at yet"
    recorded: bool = False
    """Whether it was read from a file: plans are made for it, and nothing is launched."""
    gpus: tuple[Gpu, ...] = ()
    links: Matrix = ()
    """The pair matrix, cell for cell as `nvidia-smi topo -m` names it: X, NV12, PIX, PXB, PHB, NODE, SYS; ? where unknown."""
    p2p: Mapping[str, Matrix] = field(default_factory=dict)
    """read, write, nvlink, atomics, pci -> the pair matrix of `nvidia-smi topo -p2p`: X, OK, CNS, GNS, TNS, DR, NS, U."""
    islands: tuple[Island, ...] = ()
    driver: Driver = Driver()
    host: Host = Host()
    software: Software = Software()

    @classmethod
    def unprobed(cls) -> Machine:
        """Before anybody looked: no GPU known, everything else unknown."""
        return cls()

    @property
    def accelerator(self) -> Literal["cuda", "cpu"]:
        """What DeepSpeed would run on here."""
        return "cuda" if any(gpu.problem is None for gpu in self.gpus) else "cpu"

    def island_of(self, gpu: int) -> Island:
        """The island that holds this GPU."""
        return next((island for island in self.islands if gpu in island.gpus), Island(gpus=(gpu,), cliques=((gpu,),)))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `islands` as lists of indices, what else is known of them in `island_details`."""
        data: dict[str, Any] = {"version": 1, **encode(self)}
        data["island_details"] = data["islands"]
        data["islands"] = [list(island.gpus) for island in self.islands]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Machine:
        """What `to_json` wrote, also by an older or newer dstui: what is missing is unknown, what is not known is left aside."""
        return decode(cls, {**data, "islands": data.get("island_details", [])})
