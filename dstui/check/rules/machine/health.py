"""Rules about the machine itself, for any job: what prevents a launch, what makes it slow, what is unusual."""

from __future__ import annotations

from itertools import combinations

from dstui.check.rules.machine.machine_finding import Level, MachineFinding, MachineFindings, machine_rule
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.codec import Unknown, known
from dstui.machine.report import describe_gpus
from dstui.machine.snapshot import Gpu, Machine, NvLink
from dstui.machine.topology import NEEDED_P2P, REFUSALS, fabric_failed, width

GIB = 1 << 30
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs"


@machine_rule("MC001", "warning", source="libnvidia-ml: nvmlInit")
def driver_does_not_start(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """There are NVIDIA GPUs, but the driver does not answer."""
    cards, state = known(machine.host.pci_gpus, ()), machine.driver.state
    if not isinstance(state, Unknown) or machine.gpus or not (cards or machine.driver.kernel_module):
        return
    found = f"{len(cards)} NVIDIA GPU{'s' * (len(cards) != 1)} on the PCI bus" if cards else "NVIDIA's kernel module is loaded"
    fix = "start the container with the GPUs (docker run --gpus all)" if machine.host.container else "reload NVIDIA's driver, or reboot"
    yield MachineFinding(f"{found}, but the driver does not answer: {state.reason}", "the ranks would run on the CPU, or not at all", fix)


@machine_rule("MC002", "error", source="NCCL 2.27, src/misc/nvmlwrap.cc: ncclNvmlEnsureInitialized reads every GPU")
def unusable_gpu(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """A GPU that is lost, needs a reset or cannot be opened."""
    for gpu in machine.gpus:
        if gpu.problem:
            why = "NCCL reads every GPU of the machine and fails at the first that does not answer, even one that the job leaves out"
            fix = f"reset it (nvidia-smi --gpu-reset -i {gpu.index}, as root), or hide it: expose only the others to the container"
            yield MachineFinding(f"GPU {gpu.index} cannot be used: {gpu.problem}", why, fix)


@machine_rule("MC003", "error", source="leptonai/gpud, nvlink component: links up and P2P refused on H100s without Fabric Manager")
def links_up_but_refused(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """NVLinks are up, but the driver refuses peer-to-peer transfers over them."""
    refused = [(i, j) for i, j in combinations(range(len(machine.links)), 2) if width(machine.links[i][j]) and _refusal(machine, i, j)]
    if not refused or any(fabric_failed(gpu) for gpu in machine.gpus):
        return
    i, j = refused[0]
    pairs = f"GPUs {i} and {j}" + (f" and {len(refused) - 1} other pairs" if len(refused) > 1 else "")
    message = f"NVLink is up between {pairs}, but peer-to-peer is refused ({_refusal(machine, i, j)})"
    fix = "start Fabric Manager (systemctl start nvidia-fabricmanager, of the driver's own version), then check again"
    yield MachineFinding(
        message, "on NVSwitch systems this is Fabric Manager not running: NCCL ends with CUDA error 802, or falls back to PCIe", fix
    )


def _refusal(machine: Machine, i: int, j: int) -> str:
    statuses = [machine.p2p[kind][i][j] for kind in NEEDED_P2P if kind in machine.p2p]
    return next((status for status in statuses if status in REFUSALS), "")


@machine_rule("MC004", "error", source="nvml.h, nvmlGpuFabricState_t; siderolabs/extensions#717")
def fabric_not_up(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """The NVSwitch fabric has not come up."""
    failed = [gpu.index for gpu in machine.gpus if fabric_failed(gpu)]
    if failed:
        fabric = machine.gpus[failed[0]].fabric
        state = "unknown" if isinstance(fabric, Unknown) else str(fabric.state)
        fix = "systemctl start nvidia-fabricmanager (on B200 also NVLSM); its version must be the driver's"
        yield MachineFinding(
            f"the NVSwitch fabric of {describe_gpus(failed)} is {state}", "CUDA calls fail with error 802 until it is completed", fix
        )


@machine_rule("MC005", "warning", source="nvidia-smi nvlink -s; fewer links make the whole ring slower")
def links_down(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """Some NVLinks of a GPU are down while others of the same kind of GPU work."""
    if any(gpu.mig is True for gpu in machine.gpus):
        return  # in MIG mode all ports read as down
    most = max((_active(gpu) for gpu in machine.gpus), default=0)
    for gpu in machine.gpus:
        if gpu.problem is None and 0 < _active(gpu) < most and isinstance(gpu.nvlink, NvLink):
            message = f"GPU {gpu.index} has {_active(gpu)} of {gpu.nvlink.count} NVLinks up, its neighbours {most}"
            fix = f"nvidia-smi nvlink -s -i {gpu.index}; reseat the bridge or reset the GPU, and leave it out until then"
            yield MachineFinding(message, "every collective runs at the speed of the slowest GPU", fix)


def _active(gpu: Gpu) -> int:
    """Return the number of links that carry data: those to GPUs and switches."""
    return gpu.nvlink.switched + sum(gpu.nvlink.peers.values()) if isinstance(gpu.nvlink, NvLink) else 0


@machine_rule("MC006", "warning", source="NVIDIA MIG user guide: no P2P between slices, one slice per process")
def mig_mode(machine: Machine, requirement: Requirement) -> MachineFindings:
    """A GPU is split into MIG slices."""
    gpus = requirement.chosen(machine)
    split = [gpu.index for gpu in gpus if gpu.mig is True]
    pending = [gpu.index for gpu in gpus if {gpu.mig, gpu.mig_pending} == {True, False}]
    if split:
        why = "a slice has no NVLink and no peer-to-peer, a process sees one slice only, and DeepSpeed's launcher takes no MIG names"
        fix = "turn MIG off (nvidia-smi -mig 0, as root), or run one process with CUDA_VISIBLE_DEVICES=MIG-… and without a launcher"
        yield MachineFinding(f"{describe_gpus(split)} in MIG mode", why, fix)
    if pending:
        yield MachineFinding(
            f"MIG mode of {describe_gpus(pending)} changes at the next reset", fix="nvidia-smi --gpu-reset, as root", level="info"
        )


@machine_rule("MC007", "error", source="nvml.h, nvmlComputeMode_t")
def compute_mode(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The compute mode forbids what a training does."""
    for gpu in requirement.chosen(machine):
        fix = f"nvidia-smi -i {gpu.index} -c 0, as root"
        if gpu.compute_mode == "prohibited":
            yield MachineFinding(f"GPU {gpu.index} is in compute mode prohibited", "no program may compute on it", fix)
        elif gpu.compute_mode in ("exclusive process", "exclusive thread"):
            why = "a second process on it fails: a rank restarted too early, a profiler, an evaluation"
            yield MachineFinding(f"GPU {gpu.index} is in compute mode {gpu.compute_mode}", why, fix, level="info")


@machine_rule("MC008", "warning", source="nvml.h, nvmlDeviceGetCurrPcieLinkWidth; the generation falls when idle, the width does not")
def narrow_slot(machine: Machine, requirement: Requirement) -> MachineFindings:
    """A GPU has fewer PCIe lanes than it could have."""
    for gpu in requirement.chosen(machine):
        now, could = gpu.pcie_width, gpu.pcie_width_max
        if isinstance(now, int) and isinstance(could, int) and now < could:
            why = f"offload, loading and transfers between GPUs without NVLink run at {now}/{could} of the speed"
            fix = f"another slot or riser for {gpu.bus_id}; on a cloud machine it belongs to the instance type"
            level: Level = "info" if machine.host.virtual_machine is True else "warning"
            yield MachineFinding(f"GPU {gpu.index} is connected with {now} of {could} PCIe lanes", why, fix, level=level)


@machine_rule("MC009", "warning", source="CUDA programming guide, CUDA_DEVICE_ORDER")
def mixed_gpus(machine: Machine, requirement: Requirement) -> MachineFindings:
    """Different GPUs work together."""
    models: dict[str, list[int]] = {}
    for gpu in requirement.chosen(machine):
        models.setdefault(gpu.short_name, []).append(gpu.index)
    if len(models) > 1 and not any(isinstance(gpu.name, Unknown) for gpu in requirement.chosen(machine)):
        parts = "; ".join(f"{describe_gpus(gpus)}: {name}" for name, gpus in models.items())
        largest = max(models.values(), key=len)
        path, include = "cluster.include", f"localhost:{','.join(map(str, largest))}"
        why = "the slowest limits the speed and the smallest the batch; without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA numbers them differently"
        sets = ((path, include),) if requirement.nodes == 1 else ()
        yield MachineFinding(f"different GPUs work together ({parts})", why, f"use {describe_gpus(largest)}", path, sets)


SLOWED_BY = ("hardware slowdown", "hardware thermal", "software thermal", "power brake")


@machine_rule("MC010", "warning", source="nvml.h, nvmlClocksEventReasons; nvmlDeviceGetPowerManagementDefaultLimit")
def throttled(machine: Machine, requirement: Requirement) -> MachineFindings:
    """A GPU is slowed down by its cooling or its power supply, or capped below its default."""
    for gpu in requirement.chosen(machine):
        reasons = [reason for reason in known(gpu.throttle, ()) if reason in SLOWED_BY]
        if reasons:
            message = f"GPU {gpu.index} is slowed down: {', '.join(reasons)}"
            yield MachineFinding(message, "its rank will be the straggler", "look at cooling and power supply")
        limit, default = gpu.power_limit, gpu.power_limit_default
        if isinstance(limit, float) and isinstance(default, float) and limit < 0.95 * default:
            message = f"GPU {gpu.index} is capped at {limit:.0f} W of {default:.0f} W"
            yield MachineFinding(
                message, "it computes slower under load", f"nvidia-smi -i {gpu.index} -pl {default:.0f}, as root", level="info"
            )


@machine_rule("MC011", "info", source="NVIDIA/nccl-tests#117, nccl#1637: forced peer-to-peer gave corrupt data")
def no_peer_to_peer(machine: Machine, requirement: Requirement) -> MachineFindings:
    """GPUs that cannot reach each other's memory."""
    pairs = [(i, j) for i, j in combinations(requirement.slots(machine), 2) if machine.links and not width(machine.links[i][j])]
    refused = [machine.p2p["read"][i][j] for i, j in pairs if "read" in machine.p2p and machine.p2p["read"][i][j] in REFUSALS]
    if refused and len(refused) == len(pairs):
        why = "NCCL detects this and copies through host memory; patched drivers that force peer-to-peer have corrupted data"
        fix = "set nothing; only if a run hangs in its first collective, NCCL_P2P_DISABLE=1"
        yield MachineFinding(f"the driver allows no peer-to-peer between these GPUs ({refused[0]})", why, fix)


@machine_rule("MC012", "warning", source=f"{NCCL}/troubleshooting.html, PCI Access Control Services")
def iommu(machine: Machine, requirement: Requirement) -> MachineFindings:
    """An IOMMU on bare metal, which can make peer-to-peer over PCIe slow or hang."""
    bare = machine.host.virtual_machine is False and machine.host.iommu is True
    allowed = machine.p2p.get("read", ())
    pairs = combinations(requirement.slots(machine), 2) if allowed else ()
    if bare and any(allowed[i][j] == "OK" and not width(machine.links[i][j]) for i, j in pairs):
        why = "transfers between GPUs over PCIe then go through the CPU, or hang"
        fix = "check `lspci -vvv | grep ACSCtl` as root: SrcValid+ means ACS is on; turn it off, or boot with iommu=pt"
        yield MachineFinding("the IOMMU is on, and these GPUs communicate over PCIe", why, fix)


SHM_FIX = {
    "docker": "docker run --shm-size=16g, or --ipc=host",
    "podman": "podman run --shm-size=16g, or --ipc=host",
    "kubernetes": "mount an emptyDir with medium: Memory at /dev/shm",
}
CPU_BUFFER = 70 << 20
"""Bytes of /dev/shm that DeepSpeed's CPU collectives take for each rank."""


@machine_rule("MC013", "warning", source=f"{NCCL}/troubleshooting.html, Shared Memory; deepspeed/ops/csrc/cpu/comm/shm.cpp")
def small_shared_memory(machine: Machine, requirement: Requirement) -> MachineFindings:
    """/dev/shm is too small for the ranks of a host."""
    ranks, total = requirement.ranks or max(1, len(requirement.slots(machine))), machine.host.shm_total
    on_cpu = machine.accelerator == "cpu"
    if isinstance(total, int) and total < (CPU_BUFFER * ranks if on_cpu else GIB * min(ranks, 4)):
        users = "DeepSpeed's collectives on the CPU, 66 MB for each rank," if on_cpu else "NCCL's rings within a host"
        why = f"{users} and the workers of data loaders store their data there: `No space left on device`, or a bus error"
        fix = SHM_FIX.get(str(machine.host.container), "mount -o remount,size=16G /dev/shm, as root")
        yield MachineFinding(f"/dev/shm has {total / (1 << 20):.0f} MB for {ranks} rank{'s' * (ranks != 1)}", why, fix)


CUDA_NEEDS = {"13": 580, "12": 525, "11": 450}
"""The minimum major version of the driver for a major version of CUDA."""


@machine_rule("MC014", "error", source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html")
def torch_and_driver(machine: Machine, requirement: Requirement) -> MachineFindings:
    """torch was built without CUDA, or for a newer CUDA than the driver supports."""
    software, driver = machine.software, machine.driver
    wants_cpu = requirement.cpu or requirement.variables(machine).get("DS_ACCELERATOR") == "cpu"
    if not machine.gpus or wants_cpu or requirement.other_python or not software.torch:
        return
    cuda = software.torch_cuda
    if cuda is None and not software.torch_hip:
        fix = "install a torch with CUDA: https://pytorch.org/get-started/locally"
        yield MachineFinding(f"torch {software.torch} was built without CUDA, but there are GPUs", "every rank would run on the CPU", fix)
    elif isinstance(cuda, str) and isinstance(driver.version, str):
        needed, major = CUDA_NEEDS.get(cuda.split(".")[0], 0), driver.version.split(".")[0]
        if major.isdigit() and int(major) < needed:
            fix = f"update the driver to {needed} or newer, or install a torch for CUDA {known(driver.cuda, 'that the driver runs')}"
            message = f"torch is built for CUDA {cuda}, which needs driver {needed}; this one is {driver.version}"
            yield MachineFinding(message, "torch then says that the NVIDIA driver is too old and finds no GPU", fix)


@machine_rule("MC015", "warning", source="microsoft/WSL#6587, #10277")
def windows(machine: Machine, requirement: Requirement) -> MachineFindings:
    """Several GPUs under WSL."""
    if machine.host.wsl is True and len(requirement.slots(machine)) > 1:
        why = "there is no NVLink, no affinity and little pinned memory under WSL, and NVML errors are plain unknown errors"
        yield MachineFinding("several GPUs under WSL", why, "use one GPU here, or Linux itself")


@machine_rule("MC016", "info", source="seen on an 8 x H200 node inside a one-core step: SYS is printed as NODE")
def topology_through_a_keyhole(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """The allocation hides most CPUs, so that distances and CPU lists are unreliable."""
    hidden = [gpu.index for gpu in machine.gpus if isinstance(gpu.cpus, Unknown) and isinstance(gpu.numa_node, int)]
    if hidden:
        why = "the driver reports only the CPUs of this allocation, so distances between sockets look too short"
        message = f"none of the CPUs beside {describe_gpus(hidden)} belongs to this allocation"
        yield MachineFinding(message, why, "check again from a job that has the whole node")


@machine_rule("MC017", "warning", source=f"{NCCL}/env.html, NCCL_IB_HCA")
def rdma_ports(machine: Machine, requirement: Requirement) -> MachineFindings:
    """RDMA ports that are down, or that differ so much that NCCL must be told which to use."""
    ports = known(machine.host.infiniband, ())
    if requirement.nodes < 2 or not ports:
        return
    down = [f"{port.device}:{port.port}" for port in ports if isinstance(port.state, str) and port.state != "ACTIVE"]
    if down:
        message = f"RDMA ports that are not active: {', '.join(down)}"
        yield MachineFinding(message, "fewer links carry traffic between hosts", "check cable, switch and subnet manager")
    active = [port for port in ports if port.state == "ACTIVE" and isinstance(port.gbps, float)]
    fastest = max((known(port.gbps, 0.0) for port in active), default=0.0)
    fast = sorted({port.device for port in active if port.gbps == fastest and port.link_layer == "InfiniBand"})
    slow = sorted({port.device for port in active} - set(fast))
    if fast and slow and "NCCL_IB_HCA" not in requirement.environment:
        value = "=" + ",".join(fast)
        why = f"NCCL may take {', '.join(slow)} too, which is slower; the = keeps mlx5_1 from meaning mlx5_10 as well"
        message, sets = f"{len(fast)} fast RDMA adapters and {len(slow)} slower ones", (("cluster.env.NCCL_IB_HCA", value),)
        yield MachineFinding(message, why, f"NCCL_IB_HCA={value}", "cluster.env", sets, level="info")


@machine_rule("MC018", "info", source="NVIDIA/nccl src/graph/topo.cc; Azure/azhpc-images, aws-ofi-nccl")
def flat_virtual_machine(machine: Machine, _requirement: Requirement) -> MachineFindings:
    """A virtual machine that hides how the GPUs are connected."""
    cells = {cell for i, row in enumerate(machine.links) for j, cell in enumerate(row) if i != j and not width(cell)}
    nodes = {gpu.numa_node for gpu in machine.gpus if isinstance(gpu.numa_node, int)}
    flat = cells == {"PHB"} or (cells == {"SYS"} and len(nodes) == 1)
    if flat and len(machine.gpus) > 2 and machine.host.virtual_machine is not False:
        why = "every pair without NVLink looks the same, so distances say nothing"
        fix = "use the provider's NCCL topology file (NCCL_TOPO_FILE), if there is one"
        yield MachineFinding("this looks like a virtual machine with a flat PCIe tree", why, fix)


@machine_rule("MC019", "info", source="NVIDIA/nccl src/mnnvl.cc; NCCL_MNNVL_ENABLE in env.html")
def rack_of_nvlink(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The GPUs belong to an NVLink domain that goes beyond this host."""
    fabrics = [gpu.fabric for gpu in machine.gpus if not isinstance(gpu.fabric, Unknown)]
    clusters = {(fabric.cluster, fabric.clique) for fabric in fabrics if isinstance(fabric.cluster, str) and fabric.cluster.strip("0")}
    if len(clusters) == 1:
        _, clique = next(iter(clusters))
        why = "hosts of the same cluster and clique communicate over NVLink, as if they were one; IMEX must run on all of them"
        fix = (
            "do not set NCCL_MNNVL_ENABLE=0; zero_hpz_partition_size may go up to the ranks of the clique" if requirement.nodes > 1 else ""
        )
        yield MachineFinding(f"these GPUs are part of a multi-node NVLink domain (clique {clique})", why, fix)


@machine_rule(
    "MC020", "warning", source="NVIDIA, GPU memory error management: drain the node, reset the GPU, replace it if the errors return"
)
def memory_errors(machine: Machine, requirement: Requirement) -> MachineFindings:
    """A GPU whose memory has failed."""
    for gpu in requirement.chosen(machine):
        fix = f"reset it (nvidia-smi --gpu-reset -i {gpu.index}, as root); if the errors return, have the GPU replaced"
        if isinstance(gpu.memory_errors, int) and gpu.memory_errors:
            message = f"GPU {gpu.index} has had {gpu.memory_errors} uncorrected memory errors since the driver was loaded"
            yield MachineFinding(message, "each ends the process that hits it: CUDA error, an uncorrectable ECC error encountered", fix)
        elif gpu.remap_pending is True:
            yield MachineFinding(f"GPU {gpu.index} needs a reset to replace rows of its memory", "the next error there ends the run", fix)


@machine_rule("MC021", "warning", source="torch TCPStore: EADDRINUSE ends rank 0; deepspeed/launcher/runner.py, --master_port")
def port_taken(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The port for rank 0 is already in use."""
    if requirement.port is not None and requirement.port in known(machine.host.ports, ()):
        message = f"a process was listening on port {requirement.port} when this machine was probed"
        fix = f"let a free port be chosen, or stop the process that uses it (ss -ltnp 'sport = :{requirement.port}')"
        yield MachineFinding(
            message, "rank 0 cannot listen there, and the job ends", fix, "cluster.master_port", (("cluster.master_port", None),)
        )
