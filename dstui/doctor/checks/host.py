"""Checks of a host's resources: memory, limits, CPUs, disk space, and the forecast against its GPUs, RAM and disks."""

from __future__ import annotations

from collections.abc import Iterator

from dstui.base.text import counted
from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.doctor.checks.gpus import findings_with_codes, outcome_of
from dstui.forecast.findings import findings_of
from dstui.forecast.need import Need
from dstui.machine.codec import Unknown
from dstui.machine.report import format_size

Outcomes = Iterator[Outcome]
GIB = 1 << 30
FEW_FILES = 4096
LITTLE_LOCKED = GIB


@doctor_check("shm")
def shared_memory(case: Case) -> Outcomes:
    """Shared memory, through which the ranks of a host and data loaders communicate."""
    total, found = case.machine.host.shm_total, findings_with_codes(case, "MC013")
    if isinstance(total, Unknown):
        yield Outcome("skipped", total.reason)
    elif found:
        yield outcome_of(found[0])
    else:
        yield Outcome("ok", f"{format_size(case.machine.host.shm_free)} free of {format_size(total)}")


@doctor_check("memlock")
def memlock(case: Case) -> Outcomes:
    """The memory that a rank may pin, for offloading and RDMA."""
    limit = case.machine.host.memlock
    offload = case.get("deepspeed.zero_optimization.offload_optimizer.device", "none") != "none"
    rdma = len(case.hosts) > 1 and bool(case.machine.host.infiniband)
    if isinstance(limit, Unknown):
        yield Outcome("skipped", limit.reason)
    elif (offload or rdma) and limit is not None and limit < LITTLE_LOCKED:
        why = "RDMA registers its buffers" if rdma else "offloading pins its buffers"
        fix = "`* - memlock unlimited` in /etc/security/limits.conf (LimitMEMLOCK in slurmd's unit), then log in again" + (
            "" if rdma else ", or pin_memory: false"
        )
        yield Outcome("fail" if rdma else "warn", f"memlock is {format_size(limit)}, and {why}", fix)
    else:
        yield Outcome("ok", format_size(limit))


@doctor_check("open-files")
def open_files(case: Case) -> Outcomes:
    """The files that a rank may open, for data loaders and sockets."""
    limit = case.machine.host.nofile
    if isinstance(limit, Unknown):
        yield Outcome("skipped", limit.reason)
    elif limit is not None and limit < FEW_FILES:
        yield Outcome("warn", f"{limit} open files per process", "`* - nofile 65536` in /etc/security/limits.conf, then log in again")
    else:
        yield Outcome("ok", "no limit" if limit is None else str(limit))


@doctor_check("cpus")
def cpus(case: Case) -> Outcomes:
    """There are CPUs for each rank."""
    host, ranks = case.machine.host, max(case.slots, 1)
    if isinstance(host.cpus_usable, Unknown):
        yield Outcome("skipped", host.cpus_usable.reason)
        return
    quota = host.cpu_quota if isinstance(host.cpu_quota, float) else float(host.cpus_usable)
    each = min(quota, host.cpus_usable) / ranks
    offload = case.get("deepspeed.zero_optimization.offload_optimizer.device", "none") != "none"
    if each < 1 or (offload and each < 4):
        fix = "ask for more CPUs (--cpus-per-task, docker --cpus), or use fewer ranks"
        why = ", while the optimizer runs on them" if offload else ""
        yield Outcome("warn", f"{each:.1f} CPUs for {f'each of {ranks} ranks' if ranks > 1 else 'the rank'}{why}", fix)
    else:
        yield Outcome("ok", f"{each:g} for each of {ranks} ranks" if ranks > 1 else f"{each:g}")


@doctor_check("memory")
def memory(case: Case) -> Outcomes:
    """The RAM that the job may use."""
    host = case.machine.host
    if isinstance(host.memory, Unknown):
        yield Outcome("skipped", host.memory.reason)
        return
    limited = isinstance(host.memory_limit, int)
    per_rank = host.memory / max(case.slots, 1)
    if per_rank < 4 * GIB:
        what = "the cgroup's limit" if limited else "the machine's RAM"
        fix = "ask for more (#SBATCH --mem=0, docker --memory), or use fewer ranks"
        yield Outcome("warn", f"{format_size(host.memory)} ({what}) for {counted(case.slots, 'rank')}: each loads torch and the model", fix)
    else:
        yield Outcome("ok", f"{format_size(host.memory)}{' (cgroup limit)' if limited else ''}")


@doctor_check("leftovers")
def leftovers(case: Case) -> Outcomes:
    """No other job of this user runs there."""
    found = case.ready.get("leftovers")
    if found is None:
        yield Outcome("skipped", "not checked")
    elif found:
        shown = ", ".join(f"pid {each['pid']} ({each['what']}, {each['age'] / 60:.0f} min)" for each in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        held = "cores, memory and ports" if not case.machine.gpus else "GPUs and ports"
        fix = f"dstui runs, dstui stop RUN; or kill them there, if they are leftovers of a launch: they use {held}"
        yield Outcome("warn", f"other jobs of yours run there: {shown}{more}", fix)
    else:
        yield Outcome("ok", "no other job of yours")


CHECKPOINTS = 2
"""Checkpoints that must fit on the disk: the newest is complete before the oldest is deleted."""


def _compared(case: Case, need: Need | None, code: str, what: str) -> Outcomes:
    found = case.forecast
    if found is None or need is None or need.bytes is None:
        yield Outcome("skipped", (found and found.problem) or "the Plan names no model")
    elif need.capacity is None:
        yield Outcome("skipped", f"about {format_size(need.bytes)} of {what} are needed; how much is free is not known")
    elif need.verdict == "fits":
        yield Outcome("ok", f"about {format_size(need.bytes)} of {what} are needed, {format_size(need.capacity)} are free")
    else:
        assert case.plan is not None and case.facts is not None
        reported = findings_of(case.plan, case.facts, case.machine, case.pool, found)
        fix = next((finding.fix.text for finding in reported if finding.code == code and finding.fix), None)
        low, high = need.range
        span = f"{format_size(low)} to {format_size(high)}"
        observed = f"about {format_size(need.bytes)} of {what} are needed ({span}), {format_size(need.capacity)} are free"
        yield Outcome("warn", observed, fix or "free the memory that other programs use, or use a smaller micro-batch")


@doctor_check("gpu-room")
def gpu_room(case: Case) -> Outcomes:
    """The model fits the host's GPUs."""
    yield from _compared(case, case.forecast.gpu if case.forecast else None, "FC001", "each GPU")


@doctor_check("ram-room")
def ram_room(case: Case) -> Outcomes:
    """The ranks fit into RAM, even while the model is built."""
    yield from _compared(case, case.forecast.host if case.forecast else None, "FC002", "RAM")


@doctor_check("disk-room")
def disk_room(case: Case) -> Outcomes:
    """The job's folder has room for checkpoints, and the disk of nvme_path for swapped states."""
    found = case.forecast
    if found is None or found.checkpoint is None:
        yield Outcome("skipped", (found and found.problem) or "the Plan names no model")
        return
    wanted = CHECKPOINTS * found.checkpoint
    for path, folder in (case.ready.get("folders") or {}).items():
        free = folder.get("free")
        if isinstance(free, int) and free < wanted:
            observed = f"a checkpoint takes {format_size(found.checkpoint)}, and {format_size(free)} are free in {path}"
            yield Outcome("warn", observed, "make room, save elsewhere, or keep fewer checkpoints")
        elif isinstance(free, int):
            each = format_size(found.checkpoint)
            yield Outcome("ok", f"{format_size(free)} free in {path}: room for {free // max(found.checkpoint, 1)} checkpoints of {each}")
    if found.nvme.bytes:
        yield from _compared(case, found.nvme, "FC003", "the disk of nvme_path")
    elif not case.ready.get("folders"):
        yield Outcome("skipped", "not checked")
