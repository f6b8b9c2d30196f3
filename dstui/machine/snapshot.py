"""The Machine: a snapshot of GPUs, links, host and software, with a JSON form.

Bytes are bytes, power is in watts, temperature in degrees Celsius, bandwidth in MB/s one way, utilisation in percent. Every fact that is
looked up may be Unknown, with the reason: that is a value, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.machine.codec import Maybe, Unknown, decode, encode, known

__all__ = ["Disk", "Driver", "Fabric", "Gpu", "GpuProcess", "Host", "IbPort", "Island", "Machine", "MigDevice", "Nic", "NumaNode", "NvLink"]
__all__ += ["PciGpu", "Software", "Unknown", "known"]

NOT_ASKED = Unknown("not probed")
LEFT_OUT = Unknown("left out by default")
GIB = 1 << 30

Kind = Literal["single", "NVSwitch", "pair", "mesh", "ring", "hybrid cube mesh", "partial mesh"]
Matrix = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a GPU. Inside a container the pid is the host's, and usually the list is empty."""

    pid: int  # on its host
    name: Maybe[str] = NOT_ASKED  # its program
    memory: Maybe[int] = NOT_ASKED  # bytes on this GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One slice of a GPU in MIG mode: its own device for CUDA, without NVLink."""

    uuid: Maybe[str] = NOT_ASKED  # MIG-…
    name: Maybe[str] = NOT_ASKED  # as NVML names it, with the profile: 1g.10gb
    memory_total: Maybe[int] = NOT_ASKED  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """A GPU's NVLinks: how many it has, how many are up, and their targets."""

    count: Maybe[int] = NOT_ASKED  # links that the GPU has
    active: Maybe[int] = NOT_ASKED  # links that are up
    switched: int = 0
    """Active links that end in an NVSwitch (or at an invisible end, which is one)."""
    peers: Mapping[str, int] = field(default_factory=dict)
    """Bus id of a directly joined GPU -> number of active links to it."""
    version: Maybe[str] = NOT_ASKED  # of NVLink: 4.0
    speed: Maybe[int] = NOT_ASKED
    """MB/s of one link, one way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The NVSwitch fabric's state for a GPU. Two GPUs of one NVL domain have the same non-zero cluster and clique."""

    state: Maybe[str] = NOT_ASKED
    """not supported, not started, in progress, completed"""
    status: Maybe[int] = NOT_ASKED  # NVML's return code of the probe, 0 for success
    cluster: Maybe[str] = NOT_ASKED  # UUID of the NVL domain, as 32 hexadecimal digits
    clique: Maybe[int] = NOT_ASKED  # id within the domain
    health: Maybe[int] = NOT_ASKED  # NVML's bit mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, in NVML's order (that of nvidia-smi)."""

    index: int  # from 0, as with CUDA_DEVICE_ORDER=PCI_BUS_ID
    problem: str | None = None
    """The reason why this GPU cannot be used at all (lost, no permission, needs a reset)."""
    name: Maybe[str] = NOT_ASKED  # NVIDIA H100 80GB HBM3
    uuid: Maybe[str] = NOT_ASKED  # GPU-…
    bus_id: Maybe[str] = NOT_ASKED  # 00000000:1B:00.0
    serial: Maybe[str] = LEFT_OUT  # of the board
    memory_total: Maybe[int] = NOT_ASKED  # bytes
    memory_used: Maybe[int] = NOT_ASKED  # bytes, of all processes
    memory_reserved: Maybe[int] = NOT_ASKED  # bytes that the driver keeps for itself
    utilization: Maybe[int] = NOT_ASKED  # percent of the last second in which a kernel ran
    memory_utilization: Maybe[int] = NOT_ASKED  # percent of the last second in which memory was read or written
    temperature: Maybe[int] = NOT_ASKED  # °C
    power: Maybe[float] = NOT_ASKED  # watts, now
    power_limit: Maybe[float] = NOT_ASKED  # watts, in force
    power_limit_default: Maybe[float] = NOT_ASKED  # watts, the board's default
    clock_sm: Maybe[int] = NOT_ASKED  # MHz, now
    clock_sm_max: Maybe[int] = NOT_ASKED  # MHz
    clock_memory: Maybe[int] = NOT_ASKED  # MHz, now
    throttle: Maybe[tuple[str, ...]] = NOT_ASKED  # why its clocks are lowered now: power cap, hardware thermal, …; empty if they are not
    compute_capability: Maybe[str] = NOT_ASKED  # 9.0
    compute_mode: Maybe[str] = NOT_ASKED
    """default, exclusive thread, prohibited, exclusive process"""
    persistence: Maybe[bool] = NOT_ASKED  # persistence mode
    ecc: Maybe[bool] = NOT_ASKED  # whether ECC is on
    ecc_pending: Maybe[bool] = NOT_ASKED  # whether it is on after the next reset
    memory_errors: Maybe[int] = NOT_ASKED
    """Uncorrected memory errors since the driver was loaded."""
    remap_pending: Maybe[bool] = NOT_ASKED
    """True if rows of its memory wait for a reset to be remapped, or could not be."""
    mig: Maybe[bool] = NOT_ASKED  # whether MIG mode is on
    mig_pending: Maybe[bool] = NOT_ASKED  # whether it is on after the next reset
    mig_devices: tuple[MigDevice, ...] = ()  # empty where MIG is off
    pcie_generation: Maybe[int] = NOT_ASKED  # now; it falls when the GPU is idle
    pcie_generation_max: Maybe[int] = NOT_ASKED  # of GPU and slot together
    pcie_width: Maybe[int] = NOT_ASKED  # lanes, now
    pcie_width_max: Maybe[int] = NOT_ASKED  # lanes, of GPU and slot together
    numa_node: Maybe[int] = NOT_ASKED
    """The NUMA node of the CPUs next to it."""
    cpus: Maybe[str] = NOT_ASKED
    """The CPUs next to it, as a list like 0-15,32-47."""
    memory_node: Maybe[int] = NOT_ASKED
    """The NUMA node that is this GPU's own memory (GH200, GB200); nothing may be bound to it."""
    module_id: Maybe[int] = NOT_ASKED  # its place on the baseboard
    virtualization: Maybe[str] = NOT_ASKED  # none, passthrough, vGPU, host vGPU, host vSGA
    addressing: Maybe[str] = NOT_ASKED  # how it addresses the host's memory (HMM, ATS); no probe reports it yet
    c2c: Maybe[bool] = NOT_ASKED  # whether the coherent link to its CPU is on (Grace)
    c2c_bandwidth: Maybe[int] = NOT_ASKED  # MB/s of one such link, maximum
    nvlink: Maybe[NvLink] = NOT_ASKED  # unknown if it has none
    fabric: Maybe[Fabric] = NOT_ASKED  # unknown without an NVSwitch fabric
    processes: Maybe[tuple[GpuProcess, ...]] = NOT_ASKED  # processes that use it now

    @property
    def short_name(self) -> str:
        """The name without maker and form factor, and with the memory if the name lacks it: `H100 80GB`, `RTX 3090 24GB`."""
        name = re.sub(r"\b(NVIDIA|Tesla|GeForce|Graphics Device|PCIe|HBM\d\w*|SXM\d*)\b|-SXM\d*|-PCI[eE]", "", known(self.name, "GPU"))
        name = re.sub(r"[\s-]+(?=\s|$)|(?<=\s)-+", " ", name).replace("-", " ").strip() or "GPU"
        name = re.sub(r"\s+", " ", name)
        if not re.search(r"\d\s?GB\b", name) and isinstance(self.memory_total, int):
            size = round(self.memory_total / GIB)
            last = re.search(r" (\d{1,3})$", name)  # a name of the catalogue ends with the size: H100-80
            if last is not None and abs(int(last[1]) - size) <= size // 10:
                name = name[: last.start()]
            name += f" {size}GB"
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """GPUs joined by working NVLink, directly or through each other. A GPU without NVLink is an island of its own."""

    gpus: tuple[int, ...]  # indices, ascending
    kind: Kind = "single"  # from the pattern of its links
    cliques: tuple[tuple[int, ...], ...] = ()
    """The largest subsets in which every pair is joined, the widest first: candidates for tensor parallelism."""
    width: tuple[int, int] | None = None
    """The smallest and largest number of links between two joined GPUs."""
    bandwidth: Maybe[int] = NOT_ASKED
    """MB/s one way between the two GPUs with the slowest connection."""

    @property
    def clique(self) -> tuple[int, ...]:
        """The first of the largest cliques."""
        return self.cliques[0] if self.cliques else self.gpus[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """NVIDIA's driver: from NVML, and from the kernel if NVML does not answer."""

    state: Maybe[str] = NOT_ASKED
    """ok, or why NVML did not start"""
    version: Maybe[str] = NOT_ASKED  # 550.54.15
    nvml: Maybe[str] = NOT_ASKED  # version of the library
    cuda: Maybe[str] = NOT_ASKED
    """The newest CUDA that this driver supports, not the toolkit's version."""
    confidential_compute: Maybe[bool] = NOT_ASKED  # whether confidential computing is on
    kernel_module: Maybe[str] = NOT_ASKED  # its version, by /proc
    open_module: Maybe[bool] = NOT_ASKED  # whether it is the open one
    modules: Maybe[tuple[str, ...]] = NOT_ASKED  # kernel modules around the GPUs that are loaded: nvidia, nvidia_peermem, gdrdrv, …
    device_nodes: Maybe[tuple[str, ...]] = NOT_ASKED  # names in /dev: nvidia0, nvidiactl


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node; without CPUs it is the memory of a GPU."""

    id: int  # the kernel's number
    cpus: str = ""  # a list like 0-15,32-47; empty where it has none
    memory: Maybe[int] = NOT_ASKED  # bytes
    distances: Maybe[tuple[int, ...]] = NOT_ASKED  # to each node in order, 10 = itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A mounted file system, and what is known about its device."""

    mount: str  # where it is mounted
    filesystem: str  # ext4, nfs4, tmpfs, …
    device: Maybe[str] = NOT_ASKED  # /dev/nvme0n1p1, or the server's path
    total: Maybe[int] = NOT_ASKED  # bytes
    free: Maybe[int] = NOT_ASKED  # bytes that this user may write
    local: bool = True  # whether it is on this host, not on the network
    read_only: bool = False  # mounted so
    nvme: Maybe[bool] = NOT_ASKED  # whether an NVMe drive is under it
    model: Maybe[str] = NOT_ASKED  # of the drive
    numa_node: Maybe[int] = NOT_ASKED  # of the drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network interface."""

    name: str  # eth0
    state: Maybe[str] = NOT_ASKED  # up, down, unknown, …: the kernel's operstate
    speed: Maybe[int] = NOT_ASKED
    """Mbit/s; unknown for an interface that is down or virtual."""
    mtu: Maybe[int] = NOT_ASKED  # bytes
    virtual: bool = False  # by its name: a bridge, a veth, docker0
    wireless: bool = False  # Wi-Fi
    default_route: bool = False  # whether the host's IPv4 default route leads over it
    numa_node: Maybe[int] = NOT_ASKED  # of its PCI device


@dataclass(frozen=True, slots=True, kw_only=True)
class IbPort:
    """A port of an RDMA adapter: InfiniBand, or RoCE where the link layer is Ethernet."""

    device: str  # mlx5_0
    port: int  # from 1
    state: Maybe[str] = NOT_ASKED  # ACTIVE, DOWN, INIT, …
    gbps: Maybe[float] = NOT_ASKED  # Gbit/s, as it was negotiated
    link_layer: Maybe[str] = NOT_ASKED  # InfiniBand or Ethernet
    numa_node: Maybe[int] = NOT_ASKED  # of its adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu:
    """A GPU on the PCI bus, visible also without a driver."""

    bus_id: str  # 0000:1b:00.0
    numa_node: Maybe[int] = NOT_ASKED  # of the CPUs next to it
    cpus: Maybe[str] = NOT_ASKED  # those, as a list like 0-15
    driver: Maybe[str] = NOT_ASKED  # the kernel driver that has it: nvidia, vfio-pci


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The computer around the GPUs, as far as this process may use it."""

    name: Maybe[str] = NOT_ASKED  # as os.uname() has it
    system: Maybe[str] = NOT_ASKED  # Ubuntu 22.04.4 LTS
    kernel: Maybe[str] = NOT_ASKED  # release: 5.15.0-105-generic
    cpu: Maybe[str] = NOT_ASKED  # model name
    cpu_flags: Maybe[tuple[str, ...]] = NOT_ASKED  # of those that DeepSpeed's CPU ops use: avx2, avx512f, …
    cpus: Maybe[int] = NOT_ASKED
    """Logical CPUs of the machine."""
    cpus_usable: Maybe[int] = NOT_ASKED
    """Logical CPUs that this process may run on."""
    cpu_set: Maybe[str] = NOT_ASKED  # the same as a list like 0-15,32-47
    cores: Maybe[int] = NOT_ASKED
    """Physical cores of the machine."""
    cores_usable: Maybe[int] = NOT_ASKED
    """Physical cores among the usable CPUs."""
    core_groups: Maybe[tuple[str, ...]] = NOT_ASKED
    """The hardware threads of each usable core: ("0,32", "1,33")."""
    cpu_quota: Maybe[float | None] = NOT_ASKED
    """CPU time that the cgroup grants, in CPUs; null = no quota."""
    memory_total: Maybe[int] = NOT_ASKED  # bytes of RAM
    memory_available: Maybe[int] = NOT_ASKED  # bytes available without swapping
    memory_limit: Maybe[int | None] = NOT_ASKED
    """The cgroup's limit; null = none."""
    memory_limit_used: Maybe[int] = NOT_ASKED  # bytes of it that the cgroup uses
    swap_free: Maybe[int] = NOT_ASKED  # bytes
    shm_total: Maybe[int] = NOT_ASKED  # bytes of /dev/shm
    shm_free: Maybe[int] = NOT_ASKED  # bytes
    memlock: Maybe[int | None] = NOT_ASKED
    """Bytes that a process may pin; null = no limit. Ranks on another host have that host's limit."""
    nofile: Maybe[int | None] = NOT_ASKED  # open files per process; null = no limit
    nproc: Maybe[int | None] = NOT_ASKED  # processes of this user; null = no limit
    hugepages_total: Maybe[int] = NOT_ASKED  # pages that are reserved
    hugepages_free: Maybe[int] = NOT_ASKED  # pages
    hugepage_size: Maybe[int] = NOT_ASKED  # bytes of a page
    numa: Maybe[tuple[NumaNode, ...]] = NOT_ASKED  # by number
    numa_balancing: Maybe[bool] = NOT_ASKED  # whether the kernel moves pages between nodes automatically
    disks: Maybe[tuple[Disk, ...]] = NOT_ASKED  # mounted file systems with room, local ones first
    nics: Maybe[tuple[Nic, ...]] = NOT_ASKED  # all but the loopback
    ports: Maybe[tuple[int, ...]] = NOT_ASKED
    """TCP ports with a listener."""
    infiniband: Maybe[tuple[IbPort, ...]] = NOT_ASKED  # empty where there is no RDMA adapter
    pci_gpus: Maybe[tuple[PciGpu, ...]] = NOT_ASKED  # NVIDIA's
    nvswitches: Maybe[int] = NOT_ASKED  # how many are on the PCI bus
    iommu: Maybe[bool] = NOT_ASKED  # whether it is on
    virtual_machine: Maybe[bool] = NOT_ASKED  # whether a hypervisor is under it
    container: Maybe[str | None] = NOT_ASKED  # docker, podman, kubernetes, …; null = none
    wsl: Maybe[bool] = NOT_ASKED  # Windows Subsystem for Linux
    scheduler: Maybe[str | None] = NOT_ASKED  # slurm, pbs, …; null = none
    allocation: Mapping[str, str] = field(default_factory=dict)
    """The scheduler's own variables: SLURM_NNODES and similar."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that configure NCCL, CUDA and DeepSpeed, with their values here."""
    clock: Maybe[float] = NOT_ASKED
    """Seconds since 1970 at the time of the probe, by the host's own clock."""

    @property
    def memory(self) -> Maybe[int]:
        """The RAM that this process may use: the machine's, or the cgroup's limit if that is lower."""
        if isinstance(self.memory_total, Unknown):
            return self.memory_total
        limit = known(self.memory_limit, None)
        return min(self.memory_total, limit) if limit else self.memory_total


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Versions from the packages' metadata (null = not installed), and paths of programs (null = not found)."""

    python: Maybe[str] = NOT_ASKED  # version
    python_path: Maybe[str] = NOT_ASKED  # of the probed interpreter
    torch: Maybe[str | None] = NOT_ASKED  # version
    torch_cuda: Maybe[str | None] = NOT_ASKED
    """The CUDA that torch was built for; null = a build without CUDA."""
    torch_hip: Maybe[str | None] = NOT_ASKED  # the ROCm that torch was built for; null = a build without
    deepspeed: Maybe[str | None] = NOT_ASKED  # version
    accelerate: Maybe[str | None] = NOT_ASKED  # version
    transformers: Maybe[str | None] = NOT_ASKED  # version
    mpi4py: Maybe[str | None] = NOT_ASKED  # version
    pynvml: Maybe[str | None] = NOT_ASKED  # version of nvidia-ml-py
    nccl: Maybe[str | None] = NOT_ASKED  # version of the wheel beside torch
    cuda_home: Maybe[str | None] = NOT_ASKED  # folder of the CUDA toolkit
    cuda_toolkit: Maybe[str | None] = NOT_ASKED  # its version
    nvcc: Maybe[str | None] = NOT_ASKED  # path
    gxx: Maybe[str | None] = NOT_ASKED  # path of g++ or c++
    ninja: Maybe[str | None] = NOT_ASKED  # path
    python_headers: Maybe[bool] = NOT_ASKED  # whether Python.h is there
    libaio: Maybe[bool] = NOT_ASKED  # whether the library is there
    libaio_headers: Maybe[bool] = NOT_ASKED  # whether libaio.h is there
    ssh: Maybe[str | None] = NOT_ASKED  # path
    pdsh: Maybe[str | None] = NOT_ASKED  # path
    mpirun: Maybe[str | None] = NOT_ASKED  # path
    srun: Maybe[str | None] = NOT_ASKED  # path
    numactl: Maybe[str | None] = NOT_ASKED  # path
    fp16: Maybe[bool] = NOT_ASKED
    """True if DeepSpeed's CPU accelerator supports this type here. Looked up only if it matters, since it requires importing DeepSpeed."""
    bf16: Maybe[bool] = NOT_ASKED  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine at one moment. Build it with `probe`, `read_machine` or `Machine.unprobed`."""

    source: str = "not inspected yet"  # in words: this machine, the snapshot dgx.json, h2 over ssh
    recorded: bool = False
    """True if it was read from a file: Plans can be made for it, but nothing is launched."""
    gpus: tuple[Gpu, ...] = ()  # by index
    links: Matrix = ()
    """The pair matrix with the cells of `nvidia-smi topo -m`: X, NV12, PIX, PXB, PHB, NODE, SYS; ? if unknown."""
    p2p: Mapping[str, Matrix] = field(default_factory=dict)
    """read, write, nvlink, atomics, pci -> the pair matrix of `nvidia-smi topo -p2p`: X, OK, CNS, GNS, TNS, DR, NS, U."""
    islands: tuple[Island, ...] = ()  # each GPU is in one of them
    driver: Driver = Driver()  # NVIDIA's
    host: Host = Host()  # around the GPUs
    software: Software = Software()  # used by the ranks

    @classmethod
    def unprobed(cls) -> Machine:
        """Return the machine before any probe: no GPU known, everything else unknown."""
        return cls()

    @property
    def accelerator(self) -> Literal["cuda", "cpu"]:
        """The device type that DeepSpeed would use here."""
        return "cuda" if any(gpu.problem is None for gpu in self.gpus) else "cpu"

    def island_of(self, gpu: int) -> Island:
        """Return the island of this GPU."""
        return next((island for island in self.islands if gpu in island.gpus), Island(gpus=(gpu,), cliques=((gpu,),)))

    def to_json(self) -> dict[str, Any]:
        """Convert to plain data: `islands` as lists of indices, their other facts in `island_details`."""
        data: dict[str, Any] = {"version": 1, **encode(self)}
        data["island_details"] = data["islands"]
        data["islands"] = [list(island.gpus) for island in self.islands]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Machine:
        """Build a Machine from the output of `to_json` of any release. Missing facts become unknown, unknown keys are dropped."""
        return decode(cls, {**data, "islands": data.get("island_details", [])})
