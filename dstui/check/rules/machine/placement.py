"""Rules about where a job should run on a machine, and about settings that follow from its links."""

from __future__ import annotations

from collections.abc import Sequence

from dstui.check.rules.machine.machine_finding import MachineFinding, MachineFindings, machine_rule
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.binding import deepspeed_binding, misplaced_ranks
from dstui.machine.choice import choose, is_busy, rate
from dstui.machine.codec import Unknown, known
from dstui.machine.report import describe_gpus
from dstui.machine.snapshot import Disk, Gpu, Island, Machine
from dstui.machine.topology import width
from dstui.plan.catalogue import ZERO_SECTION

GIB = 1 << 30
ZERO_PATH = f"deepspeed.{ZERO_SECTION}"
INCLUDE = "cluster.include"
SMALL_BUCKETS = ((f"{ZERO_PATH}.allgather_bucket_size", 200_000_000), (f"{ZERO_PATH}.reduce_bucket_size", 200_000_000))
IN_MEMORY = ("tmpfs", "overlay")
"""File systems that are unsuitable for offloading: memory itself, and the container's own layer."""
PCIE_GIGABYTES = {1: 3.2, 2: 6.4, 3: 12.4, 4: 25.8, 5: 55.4, 6: 110.0}
"""Practical GB/s to the host over x16, by generation (measured for 3 to 5, else scaled)."""


def working(machine: Machine, requirement: Requirement) -> set[int]:
    """Return the chosen GPUs that can be used."""
    return {gpu.index for gpu in requirement.chosen(machine) if gpu.problem is None}


def islands_of(machine: Machine, requirement: Requirement) -> list[Island]:
    """Return the islands of the chosen, working GPUs."""
    return [island for island in machine.islands if working(machine, requirement) & set(island.gpus)]


def clique_size(machine: Machine, requirement: Requirement) -> int:
    """Return the largest number of chosen, working GPUs that are all joined to each other."""
    chosen = working(machine, requirement)
    return max((len(chosen & set(clique)) for island in machine.islands for clique in island.cliques), default=1)


@machine_rule(
    "MC201", "warning", source="NCCL builds its rings over NVLink where it can; deepspeed/launcher/runner.py sorts the slots of a host"
)
def better_gpus(machine: Machine, requirement: Requirement) -> MachineFindings:
    """Other GPUs of this machine have better links, or are free."""
    chosen = requirement.slots(machine)
    if requirement.nodes > 1 or not 0 < len(chosen) < len(machine.gpus):
        return
    now = rate(machine, chosen)
    widest = max((width(cell) for row in machine.links for cell in row), default=0)
    if now.flaws[:4] == (0, 1, 0, -widest):
        return  # none can be better, and searching takes half a millisecond
    best = choose(machine, len(chosen))
    if best is None or best.flaws[:4] >= now.flaws[:4]:
        return
    if best.flaws[0] < now.flaws[0]:
        message = f"{describe_gpus([gpu for gpu in chosen if is_busy(machine.gpus[gpu])])} busy, {describe_gpus(best.gpus)} free"
    else:
        message = f"{describe_gpus(chosen)} have slower links than {describe_gpus(best.gpus)}"
    why = "collectives run at the speed of the weakest link between the ranks"
    yield MachineFinding(message, why, f"use {describe_gpus(best.gpus)}", INCLUDE, _include(best.gpus))


@machine_rule("MC202", "warning", source="NVML: memory in use, processes")
def busy_gpus(machine: Machine, requirement: Requirement) -> MachineFindings:
    """A chosen GPU is in use by another process."""
    taken = [gpu for gpu in requirement.chosen(machine) if is_busy(gpu)]
    for gpu in taken:
        yield _busy(requirement, gpu, [other.index for other in requirement.chosen(machine) if other not in taken])


def _busy(requirement: Requirement, gpu: Gpu, free: list[int]) -> MachineFinding:
    processes = known(gpu.processes, ())
    who = f", pid {processes[0].pid} ({processes[0].name})" if processes and processes[0].name else ""
    used = f"{known(gpu.memory_used, 0) / GIB:.0f} GB in use" if isinstance(gpu.memory_used, int) else "in use"
    sets = _include(free) if free and requirement.nodes == 1 else ()
    why = "a rank that starts there runs out of memory, or shares the GPU and slows all others down"
    fix = f"leave GPU {gpu.index} out" if sets else "wait, or stop that process"
    return MachineFinding(f"GPU {gpu.index} is busy: {used}{who}", why, fix, INCLUDE, sets)


def _include(gpus: Sequence[int]) -> tuple[tuple[str, str], ...]:
    return ((INCLUDE, f"localhost:{','.join(map(str, gpus))}"),)


@machine_rule("MC203", "info", source="NVLink islands decide how far NCCL's fast rings reach")
def several_islands(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The job spans several NVLink islands of one machine."""
    parts = islands_of(machine, requirement)
    joined = [island for island in parts if island.kind != "single"]
    if requirement.nodes == 1 and joined and len(parts) > 1:
        words = "; ".join(", ".join(map(str, island.gpus)) for island in parts)
        why = "between islands everything goes over PCIe or the sockets; a job that fits one island is faster there per GPU"
        chosen = requirement.slots(machine)
        best = max((tuple(gpu for gpu in island.gpus if gpu in chosen) for island in joined), key=len)
        fix = f"if the model fits {len(best)} GPUs: use {describe_gpus(best)}"
        yield MachineFinding(f"the GPUs form {len(parts)} islands ({words})", why, fix, INCLUDE, _include(best))


@machine_rule("MC204", "info", source="DeepSpeed docs, zero_hpz_partition_size; deepspeed/utils/groups.py")
def partition_within_a_node(machine: Machine, requirement: Requirement) -> MachineFindings:
    """ZeRO-3 over several hosts without a second partition of the weights within a host, or on one host with one."""
    ranks, path = len(requirement.slots(machine)), f"{ZERO_PATH}.zero_hpz_partition_size"
    off = ((path, 1),)
    if requirement.hpz > 1 and requirement.stage != 3:
        message = f"zero_hpz_partition_size does nothing at stage {requirement.stage}"
        yield MachineFinding(message, "DeepSpeed says nothing about it", "write 1", path, off, level="warning")
    elif requirement.hpz > 1 and requirement.nodes == 1:
        message = f"zero_hpz_partition_size {requirement.hpz} on one host saves no network traffic"
        yield MachineFinding(message, "it is meant for several hosts, and costs memory", "write 1", path, off, level="warning")
    elif requirement.stage == 3 and requirement.nodes > 1 and requirement.hpz <= 1 and ranks > 1:
        why = (
            f"in the backward pass the weights are then gathered within each host, over {_way(machine, requirement)}, not over the network"
        )
        cost = f"{2 * requirement.params / ranks / 1e9:.1f} GB more" if requirement.params else "2 bytes x parameters / size"
        message = f"ZeRO-3 over {requirement.nodes} hosts"
        fix = f"zero_hpz_partition_size: {ranks}"
        yield MachineFinding(message, f"{why}; it costs {cost} per GPU{_smaller(machine, requirement, ranks)}", fix, path, ((path, ranks),))


def _smaller(machine: Machine, requirement: Requirement, ranks: int) -> str:
    """Return the other size worth considering, in words: the NVLink island within a host."""
    island = min((len(set(island.gpus) & set(requirement.slots(machine))) for island in islands_of(machine, requirement)), default=1)
    if not 1 < island < ranks:
        return ""
    return f" (or {island}, the NVLink island: all gathers on NVLink, for {ranks // island} times that memory)"


def _way(machine: Machine, requirement: Requirement) -> str:
    parts = islands_of(machine, requirement)
    return "NVLink" if len(parts) == 1 and parts[0].kind != "single" else "PCIe"


@machine_rule(
    "MC205", "warning", source="DeepSpeed blog, domino: up to 47 % of the time of tensor parallelism; groups are contiguous ranks"
)
def parallel_groups(machine: Machine, requirement: Requirement) -> MachineFindings:
    """Tensor or sequence parallelism across slow links."""
    slots = requirement.slots(machine)
    for size, name, path in (
        (requirement.tensor_parallel, "tensor parallelism", "deepspeed.tensor_parallel.autotp_size"),
        (requirement.sequence_parallel, "sequence parallelism", "deepspeed.sequence_parallel_size"),
    ):
        if size < 2 or len(slots) < 2 or not machine.links:
            continue
        groups = [slots[start : start + size] for start in range(0, len(slots), size)]
        most = clique_size(machine, requirement)
        split = next((group for group in groups if not _all_joined(machine, group)), None)
        if size > len(slots):
            message = f"{name} of {size} reaches over hosts: {len(slots)} GPUs are used on each"
            yield MachineFinding(message, "four all-reduces per layer then cross the network", f"at most {max(most, 1)} here", path)
        elif split and most > 1:
            message = f"{name} of {size} puts {describe_gpus(split)} into one group, which NVLink does not join"
            why = "its all-reduces run in every layer, at the speed of the slowest link"
            yield MachineFinding(message, why, f"at most {most} here, on GPUs in a row", path)
        elif split:
            why, fix = "its all-reduces in every layer go over PCIe", "ZeRO shares the weights with less traffic"
            yield MachineFinding(f"{name} of {size} without NVLink", why, fix, path)


def _all_joined(machine: Machine, group: tuple[int, ...]) -> bool:
    return any(set(group) <= set(clique) for island in machine.islands for clique in island.cliques)


@machine_rule("MC206", "info", source="deepspeedai/DeepSpeed#3349, #1174: stage 3 several times slower than stage 2 on slow links")
def stage_3_on_slow_links(machine: Machine, requirement: Requirement) -> MachineFindings:
    """ZeRO-3 gathers weights over PCIe."""
    slots = requirement.slots(machine)
    joined = any(island.kind != "single" for island in islands_of(machine, requirement))
    if requirement.stage != 3 or requirement.nodes > 1 or len(slots) < 2 or not machine.links or joined:
        return
    why = "every layer's weights are transferred at least twice per step; stage 2 transfers only gradients, once per accumulation"
    more = "" if requirement.quantized_weights else "; else zero_quantized_weights halves the traffic"
    fix = f"if the weights fit one GPU, stage 2; raise gradient_accumulation_steps{more}"
    yield MachineFinding("ZeRO-3 on GPUs without NVLink", why, fix, f"{ZERO_PATH}.stage")


@machine_rule("MC207", "info", source="deepspeed/runtime/zero/config.py: overlap_comm is true by default at stage 3 only")
def overlap(machine: Machine, requirement: Requirement) -> MachineFindings:
    """Communication could overlap the backward pass, but does not."""
    if requirement.stage in (1, 2) and requirement.overlap_comm is None and len(requirement.slots(machine)) * requirement.nodes > 1:
        small = min((known(gpu.memory_total, 80 * GIB) for gpu in requirement.chosen(machine)), default=80 * GIB) <= 25 * GIB
        path = f"{ZERO_PATH}.overlap_comm"
        buckets = SMALL_BUCKETS if small and requirement.buckets is None else ()
        cost = "it needs 4.5 bytes per element of both buckets" + (": smaller buckets on these GPUs" if buckets else "")
        why = f"gradients are then reduced while the backward pass goes on; {cost}"
        yield MachineFinding(
            f"overlap_comm is off by default at stage {requirement.stage}", why, "turn it on", path, ((path, True), *buckets)
        )


@machine_rule("MC208", "warning", source="deepspeed/utils/numa.py, get_numactl_cmd: rank i gets the i-th part of the cores, counted from 0")
def binding_to_another_socket(machine: Machine, requirement: Requirement) -> MachineFindings:
    """--bind_cores_to_rank would put ranks on the CPUs of another socket than their GPU's."""
    if requirement.cpu_binding != "deepspeed":
        return
    bindings = deepspeed_binding(machine, requirement.slots(machine))
    misplaced = misplaced_ranks(machine, bindings)
    if misplaced:
        first = misplaced[0]
        message = f"--bind_cores_to_rank puts {len(misplaced)} of {len(bindings)} ranks on another socket: {first.rank} on {first.cpu_list}"
        why = f"GPU {first.gpu} is attached to CPUs {machine.gpus[first.gpu].cpus}; copies to the host then take half the speed"
        yield MachineFinding(
            message, why, "bind with numactl, by the GPUs' own CPUs", "cluster.cpu_binding", (("cluster.cpu_binding", "numactl"),)
        )


@machine_rule("MC209", "info", source="DeepSpeed blog, zenflow-corebinding: about 15 % of an offloaded step")
def unbound_offload(machine: Machine, requirement: Requirement) -> MachineFindings:
    """Ranks that also work on the CPU are not bound to the CPUs near their GPU."""
    nodes = {gpu.numa_node for gpu in requirement.chosen(machine) if isinstance(gpu.numa_node, int)}
    if (
        requirement.offload == "none"
        or requirement.cpu_binding
        or len(nodes) < 2
        or any(not gpu.cpus for gpu in requirement.chosen(machine))
    ):
        return
    right = deepspeed_binding(machine, requirement.slots(machine))
    kind = "deepspeed" if right and not misplaced_ranks(machine, right) else "numactl"
    why = "the optimizer runs on CPUs here; bound to the node of its GPU a step is about 15 % shorter"
    path = "cluster.cpu_binding"
    yield MachineFinding(f"the GPUs are attached to {len(nodes)} NUMA nodes", why, f"{path}: {kind}", path, ((path, kind),))


@machine_rule(
    "MC210", "info", source="PCIe x16 as measured by generation; offload moves 4 bytes per parameter and step (DeepSpeed blog, zenflow)"
)
def offload_traffic(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The cost of offloading over this machine's PCIe."""
    gpus = requirement.chosen(machine)
    if requirement.offload == "none" or not requirement.params or not gpus:
        return
    if any(gpu.c2c is True for gpu in gpus):
        if not requirement.super_offload:
            path = f"{ZERO_PATH}.offload_optimizer.super_offload"
            why = "CPU and GPU share a coherent link here; SuperOffload uses it, up to 4 times faster than plain offload"
            yield MachineFinding("this is a Grace system", why, "turn super_offload on", path, ((path, True),))
        return
    speeds = [_host_speed(gpu) for gpu in gpus]
    if all(speeds):
        seconds = 4 * requirement.params / (len(gpus) * requirement.nodes) / (min(speeds) * 1e9)
        message = (
            f"offload moves {4 * requirement.params / 1e9:.0f} GB per step, {seconds:.1f} s over PCIe at {min(speeds):.0f} GB/s per GPU"
        )
        why = "plus the optimizer's own time on the CPU; gradient accumulation spreads it over more samples"
        yield MachineFinding(message, why, path=f"{ZERO_PATH}.offload_optimizer", level="info")


def _host_speed(gpu: Gpu) -> float:
    if isinstance(gpu.pcie_generation_max, Unknown) or isinstance(gpu.pcie_width, Unknown):
        return 0.0
    return PCIE_GIGABYTES.get(gpu.pcie_generation_max, 0.0) * gpu.pcie_width / 16


@machine_rule("MC211", "warning", source="DeepSpeed, DeepNVMe: local NVMe drives, 3 GB/s and more")
def nvme_folder(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The folder for offloading to NVMe is on another kind of disk."""
    if requirement.offload != "nvme" or not requirement.nvme_path or isinstance(machine.host.disks, Unknown):
        return
    disk = _disk_of(requirement.nvme_path, machine.host.disks)
    if disk is None or disk.nvme is True or (isinstance(disk.nvme, Unknown) and disk.local and disk.filesystem not in IN_MEMORY):
        return
    kind = f"{disk.filesystem}, {'no NVMe drive' if disk.local else 'over the network'}"
    better = next((other.mount for other in machine.host.disks if other.nvme is True and not other.read_only), None)
    fix = f"a folder under {better}" if better else "a local NVMe drive, or offload to the CPU"
    message, why = (
        f"nvme_path {requirement.nvme_path} is on {disk.mount} ({kind})",
        "the optimizer's state is read and written in every step",
    )
    yield MachineFinding(message, why, fix, f"{ZERO_PATH}.offload_optimizer.nvme_path")


def _disk_of(path: str, disks: tuple[Disk, ...]) -> Disk | None:
    """Return the file system of a path: the one with the longest mount point above it."""
    above = [disk for disk in disks if path == disk.mount or path.startswith(disk.mount.rstrip("/") + "/")]
    return max(above, key=lambda disk: len(disk.mount), default=None)


@machine_rule("MC212", "info", source="the islands of the pair matrix")
def what_the_links_mean(machine: Machine, requirement: Requirement) -> MachineFindings:
    """The parallelism that the links allow."""
    parts, most, count = islands_of(machine, requirement), clique_size(machine, requirement), len(working(machine, requirement))
    if count < 2 or not machine.links or len(parts) != 1:
        return
    island = parts[0]
    if island.kind == "NVSwitch":
        why = "any two GPUs have the full width; any subset is as good as another"
        yield MachineFinding(f"one NVSwitch island: tensor parallelism up to {most} is cheap", why)
    elif island.kind in ("mesh", "pair"):
        message = f"all {count} GPUs are joined to each other: tensor parallelism up to {most}"
        yield MachineFinding(message, f"{island.width[0]} links between any two" if island.width else "NVLink between any two")
    else:
        why = "NCCL's rings reach all of them, but only within a clique is every pair joined"
        yield MachineFinding(f"{island.kind} of {count} GPUs: tensor parallelism up to {most}", why)
