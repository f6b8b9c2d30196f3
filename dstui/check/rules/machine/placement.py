"""Advice on where a job should run on a machine, and on the settings that follow from its links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dstui.check.rules.machine.recommendation import Advice, Wish, piece
from dstui.machine.binding import deepspeed_binding, far_ranks
from dstui.machine.choice import busy, choose, rate
from dstui.machine.codec import Unknown, known
from dstui.machine.snapshot import Disk, Gpu, Island, Machine
from dstui.machine.topology import width
from dstui.machine.words import gpus_in_words

Pieces = Iterator[Advice]
GIB = 1 << 30
ZERO = "deepspeed.zero_optimization"
INCLUDE = "cluster.include"
SMALL_BUCKETS = ((f"{ZERO}.allgather_bucket_size", 200_000_000), (f"{ZERO}.reduce_bucket_size", 200_000_000))
IN_MEMORY = ("tmpfs", "overlay")
"""No place for what does not fit into memory: the one is memory, the other the container's own layer."""
PCIE_GIGABYTES = {1: 3.2, 2: 6.4, 3: 12.4, 4: 25.8, 5: 55.4, 6: 110.0}
"""GB/s to the host that x16 reaches in practice, by generation (measured for 3 to 5, else scaled)."""


def working(machine: Machine, wish: Wish) -> set[int]:
    """The chosen GPUs that can be used."""
    return {gpu.index for gpu in wish.chosen(machine) if gpu.problem is None}


def islands_of(machine: Machine, wish: Wish) -> list[Island]:
    """The islands that the chosen GPUs lie in, as far as they work."""
    return [island for island in machine.islands if working(machine, wish) & set(island.gpus)]


def clique_size(machine: Machine, wish: Wish) -> int:
    """The largest number of chosen GPUs that work and are all joined to each other."""
    chosen = working(machine, wish)
    return max((len(chosen & set(clique)) for island in machine.islands for clique in island.cliques), default=1)


@piece("MC201", "warning", source="NCCL builds its rings over NVLink where it can; deepspeed/launcher/runner.py sorts the slots of a host")
def better_gpus(machine: Machine, wish: Wish) -> Pieces:
    """Other GPUs of this machine are better joined, or free."""
    chosen = wish.slots(machine)
    if wish.nodes > 1 or not 0 < len(chosen) < len(machine.gpus):
        return
    now = rate(machine, chosen)
    widest = max((width(cell) for row in machine.links for cell in row), default=0)
    if now.flaws[:4] == (0, 1, 0, -widest):
        return  # none can be better, and looking for one takes half a millisecond
    best = choose(machine, len(chosen))
    if best is None or best.flaws[:4] >= now.flaws[:4]:
        return
    if best.flaws[0] < now.flaws[0]:
        message = f"{gpus_in_words([gpu for gpu in chosen if busy(machine.gpus[gpu])])} in use by somebody, {gpus_in_words(best.gpus)} free"
    else:
        message = f"{gpus_in_words(chosen)} are worse joined than {gpus_in_words(best.gpus)}"
    why = "collectives run at the speed of the weakest link between the ranks"
    yield Advice(message, why, f"use {gpus_in_words(best.gpus)}", INCLUDE, _include(best.gpus))


@piece("MC202", "warning", source="NVML: memory in use, processes")
def busy_gpus(machine: Machine, wish: Wish) -> Pieces:
    """A chosen GPU is in use by somebody else."""
    taken = [gpu for gpu in wish.chosen(machine) if busy(gpu)]
    for gpu in taken:
        yield _busy(wish, gpu, [other.index for other in wish.chosen(machine) if other not in taken])


def _busy(wish: Wish, gpu: Gpu, free: list[int]) -> Advice:
    processes = known(gpu.processes, ())
    who = f", pid {processes[0].pid} ({processes[0].name})" if processes and processes[0].name else ""
    used = f"{known(gpu.memory_used, 0) / GIB:.0f} GB in use" if isinstance(gpu.memory_used, int) else "in use"
    sets = _include(free) if free and wish.nodes == 1 else ()
    why = "a rank that starts there runs out of memory, or shares the GPU and slows all others down"
    fix = f"leave GPU {gpu.index} out" if sets else "wait, or stop that process"
    return Advice(f"GPU {gpu.index} is busy: {used}{who}", why, fix, INCLUDE, sets)


def _include(gpus: Sequence[int]) -> tuple[tuple[str, str], ...]:
    return ((INCLUDE, f"localhost:{','.join(map(str, gpus))}"),)


@piece("MC203", "info", source="NVLink islands decide how far NCCL's fast rings reach")
def several_islands(machine: Machine, wish: Wish) -> Pieces:
    """The job spans several NVLink islands of one machine."""
    parts = islands_of(machine, wish)
    joined = [island for island in parts if island.kind != "single"]
    if wish.nodes == 1 and joined and len(parts) > 1:
        words = "; ".join(", ".join(map(str, island.gpus)) for island in parts)
        why = "between islands everything goes over PCIe or the sockets; a job that fits one island is faster there per GPU"
        chosen = wish.slots(machine)
        best = max((tuple(gpu for gpu in island.gpus if gpu in chosen) for island in joined), key=len)
        fix = f"if the model fits {len(best)} GPUs: use {gpus_in_words(best)}"
        yield Advice(f"the GPUs form {len(parts)} islands ({words})", why, fix, INCLUDE, _include(best))


@piece("MC204", "info", source="DeepSpeed docs, zero_hpz_partition_size; deepspeed/utils/groups.py")
def partition_within_a_node(machine: Machine, wish: Wish) -> Pieces:
    """ZeRO-3 over several hosts without, or on one host with, a second partition of the weights within a host."""
    ranks, path = len(wish.slots(machine)), f"{ZERO}.zero_hpz_partition_size"
    off = ((path, 1),)
    if wish.hpz > 1 and wish.stage != 3:
        message = f"zero_hpz_partition_size does nothing at stage {wish.stage}"
        yield Advice(message, "DeepSpeed says nothing about it", "write 1", path, off, level="warning")
    elif wish.hpz > 1 and wish.nodes == 1:
        message = f"zero_hpz_partition_size {wish.hpz} on one host saves no network traffic"
        yield Advice(message, "it is meant for several hosts, and costs memory", "write 1", path, off, level="warning")
    elif wish.stage == 3 and wish.nodes > 1 and wish.hpz <= 1 and ranks > 1:
        why = f"the weights are then gathered within each host, over {_way(machine, wish)}, not over the network, in the backward pass"
        cost = f"{2 * wish.params / ranks / 1e9:.1f} GB more" if wish.params else "2 bytes x parameters / size"
        message = f"ZeRO-3 over {wish.nodes} hosts"
        fix = f"zero_hpz_partition_size: {ranks}"
        yield Advice(message, f"{why}; it costs {cost} per GPU{_smaller(machine, wish, ranks)}", fix, path, ((path, ranks),))


def _smaller(machine: Machine, wish: Wish, ranks: int) -> str:
    """The other size that is worth a thought: the NVLink island within a host."""
    island = min((len(set(island.gpus) & set(wish.slots(machine))) for island in islands_of(machine, wish)), default=1)
    if not 1 < island < ranks:
        return ""
    return f" (or {island}, the NVLink island: all gathers on NVLink, for {ranks // island} times that memory)"


def _way(machine: Machine, wish: Wish) -> str:
    parts = islands_of(machine, wish)
    return "NVLink" if len(parts) == 1 and parts[0].kind != "single" else "PCIe"


@piece("MC205", "warning", source="DeepSpeed blog, domino: up to 47 % of the time of tensor parallelism; groups are contiguous ranks")
def parallel_groups(machine: Machine, wish: Wish) -> Pieces:
    """Tensor or sequence parallelism across slow links."""
    slots = wish.slots(machine)
    for size, name, path in (
        (wish.tensor_parallel, "tensor parallelism", "deepspeed.tensor_parallel.autotp_size"),
        (wish.sequence_parallel, "sequence parallelism", "deepspeed.sequence_parallel_size"),
    ):
        if size < 2 or len(slots) < 2 or not machine.links:
            continue
        groups = [slots[start : start + size] for start in range(0, len(slots), size)]
        most = clique_size(machine, wish)
        split = next((group for group in groups if not _all_joined(machine, group)), None)
        if size > len(slots):
            message = f"{name} of {size} reaches over hosts: {len(slots)} GPUs are used on each"
            yield Advice(message, "four all-reduces per layer then cross the network", f"at most {max(most, 1)} here", path)
        elif split and most > 1:
            message = f"{name} of {size} puts {gpus_in_words(split)} into one group, which NVLink does not join"
            why = "its all-reduces run in every layer, at the speed of the slowest link"
            yield Advice(message, why, f"at most {most} here, on GPUs in a row", path)
        elif split:
            why, fix = "its all-reduces in every layer go over PCIe", "ZeRO shares the weights with less traffic"
            yield Advice(f"{name} of {size} without NVLink", why, fix, path)


def _all_joined(machine: Machine, group: tuple[int, ...]) -> bool:
    return any(set(group) <= set(clique) for island in machine.islands for clique in island.cliques)


@piece("MC206", "info", source="deepspeedai/DeepSpeed#3349, #1174: stage 3 several times slower than stage 2 on slow links")
def stage_3_on_slow_links(machine: Machine, wish: Wish) -> Pieces:
    """ZeRO-3 gathers weights over PCIe."""
    slots = wish.slots(machine)
    joined = any(island.kind != "single" for island in islands_of(machine, wish))
    if wish.stage != 3 or wish.nodes > 1 or len(slots) < 2 or not machine.links or joined:
        return
    why = "every layer's weights cross it twice per step and more; stage 2 moves gradients only, once per accumulation"
    more = "" if wish.quantized_weights else "; else zero_quantized_weights halves the traffic"
    fix = f"if the weights fit one GPU, stage 2; raise gradient_accumulation_steps{more}"
    yield Advice("ZeRO-3 on GPUs without NVLink", why, fix, f"{ZERO}.stage")


@piece("MC207", "info", source="deepspeed/runtime/zero/config.py: overlap_comm is true by default at stage 3 only")
def overlap(machine: Machine, wish: Wish) -> Pieces:
    """Communication that could hide behind the backward pass does not."""
    if wish.stage in (1, 2) and wish.overlap_comm is None and len(wish.slots(machine)) * wish.nodes > 1:
        small = min((known(gpu.memory_total, 80 * GIB) for gpu in wish.chosen(machine)), default=80 * GIB) <= 25 * GIB
        path = f"{ZERO}.overlap_comm"
        buckets = SMALL_BUCKETS if small and wish.buckets is None else ()
        cost = "it needs 4.5 bytes per element of both buckets" + (": smaller buckets on these GPUs" if buckets else "")
        why = f"gradients are then reduced while the backward pass goes on; {cost}"
        yield Advice(f"overlap_comm is off by default at stage {wish.stage}", why, "turn it on", path, ((path, True), *buckets))


@piece("MC208", "warning", source="deepspeed/utils/numa.py, get_numactl_cmd: rank i gets the i-th part of the cores, counted from 0")
def binding_to_the_far_socket(machine: Machine, wish: Wish) -> Pieces:
    """--bind_cores_to_rank would put ranks on the CPUs of another socket than their GPU's."""
    if wish.cpu_binding != "deepspeed":
        return
    bindings = deepspeed_binding(machine, wish.slots(machine))
    far = far_ranks(machine, bindings)
    if far:
        first = far[0]
        message = f"--bind_cores_to_rank puts {len(far)} of {len(bindings)} ranks on far CPUs: rank {first.rank} on {first.cpu_list}"
        why = f"GPU {first.gpu} hangs on CPUs {machine.gpus[first.gpu].cpus}; copies to the host then take half the speed"
        yield Advice(message, why, "bind with numactl, by the GPUs' own CPUs", "cluster.cpu_binding", (("cluster.cpu_binding", "numactl"),))


@piece("MC209", "info", source="DeepSpeed blog, zenflow-corebinding: about 15 % of an offloaded step")
def unbound_offload(machine: Machine, wish: Wish) -> Pieces:
    """Ranks that work on the CPU too are not bound to the CPUs beside their GPU."""
    nodes = {gpu.numa_node for gpu in wish.chosen(machine) if isinstance(gpu.numa_node, int)}
    if wish.offload == "none" or wish.cpu_binding or len(nodes) < 2 or any(not gpu.cpus for gpu in wish.chosen(machine)):
        return
    right = deepspeed_binding(machine, wish.slots(machine))
    kind = "deepspeed" if right and not far_ranks(machine, right) else "numactl"
    why = "the optimizer runs on CPUs here; bound to the node of its GPU a step is about 15 % shorter"
    path = "cluster.cpu_binding"
    yield Advice(f"the GPUs hang on {len(nodes)} NUMA nodes", why, f"{path}: {kind}", path, ((path, kind),))


@piece("MC210", "info", source="PCIe x16 as measured by generation; offload moves 4 bytes per parameter and step (DeepSpeed blog, zenflow)")
def offload_traffic(machine: Machine, wish: Wish) -> Pieces:
    """What offloading costs on this machine's PCIe."""
    gpus = wish.chosen(machine)
    if wish.offload == "none" or not wish.params or not gpus:
        return
    if any(gpu.c2c is True for gpu in gpus):
        if not wish.super_offload:
            path = f"{ZERO}.offload_optimizer.super_offload"
            why = "CPU and GPU share a coherent link here; SuperOffload uses it, up to 4 times faster than plain offload"
            yield Advice("this is a Grace system", why, "turn super_offload on", path, ((path, True),))
        return
    speeds = [_host_speed(gpu) for gpu in gpus]
    if all(speeds):
        seconds = 4 * wish.params / (len(gpus) * wish.nodes) / (min(speeds) * 1e9)
        message = f"offload moves {4 * wish.params / 1e9:.0f} GB per step, {seconds:.1f} s over PCIe at {min(speeds):.0f} GB/s per GPU"
        why = "plus the optimizer's own time on the CPU; gradient accumulation spreads it over more samples"
        yield Advice(message, why, path=f"{ZERO}.offload_optimizer", level="info")


def _host_speed(gpu: Gpu) -> float:
    if isinstance(gpu.pcie_generation_max, Unknown) or isinstance(gpu.pcie_width, Unknown):
        return 0.0
    return PCIE_GIGABYTES.get(gpu.pcie_generation_max, 0.0) * gpu.pcie_width / 16


@piece("MC211", "warning", source="DeepSpeed, DeepNVMe: local NVMe drives, 3 GB/s and more")
def nvme_folder(machine: Machine, wish: Wish) -> Pieces:
    """The folder for offloading to NVMe lies on something else."""
    if wish.offload != "nvme" or not wish.nvme_path or isinstance(machine.host.disks, Unknown):
        return
    disk = _disk_of(wish.nvme_path, machine.host.disks)
    if disk is None or disk.nvme is True or (isinstance(disk.nvme, Unknown) and disk.local and disk.filesystem not in IN_MEMORY):
        return
    kind = f"{disk.filesystem}, {'no NVMe drive' if disk.local else 'over the network'}"
    better = next((other.mount for other in machine.host.disks if other.nvme is True and not other.read_only), None)
    fix = f"a folder under {better}" if better else "a local NVMe drive, or offload to the CPU"
    message, why = f"nvme_path {wish.nvme_path} is on {disk.mount} ({kind})", "the optimizer's state is read and written in every step"
    yield Advice(message, why, fix, f"{ZERO}.offload_optimizer.nvme_path")


def _disk_of(path: str, disks: tuple[Disk, ...]) -> Disk | None:
    """The file system that holds a path: the one with the longest mount point above it."""
    above = [disk for disk in disks if path == disk.mount or path.startswith(disk.mount.rstrip("/") + "/")]
    return max(above, key=lambda disk: len(disk.mount), default=None)


@piece("MC212", "info", source="the islands of the pair matrix")
def what_the_links_mean(machine: Machine, wish: Wish) -> Pieces:
    """What the links allow, in one sentence."""
    parts, most, count = islands_of(machine, wish), clique_size(machine, wish), len(working(machine, wish))
    if count < 2 or not machine.links or len(parts) != 1:
        return
    island = parts[0]
    if island.kind == "NVSwitch":
        why = "any two GPUs have the full width; any subset is as good as another"
        yield Advice(f"one NVSwitch island: tensor parallelism up to {most} is cheap", why)
    elif island.kind in ("mesh", "pair"):
        least, _ = island.width or (0, 0)
        message = f"all {count} GPUs are joined to each other: tensor parallelism up to {most}"
        yield Advice(message, f"{least} links between any two")
    else:
        why = "NCCL's rings reach all of them, but only within a clique is every pair joined"
        yield Advice(f"{island.kind} of {count} GPUs: tensor parallelism up to {most}", why)
