"""Checks of the forecast against a host: its GPUs, its RAM and its disks."""

from __future__ import annotations

from collections.abc import Iterator

from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import Need
from dstui.machine.report import format_size

Outcomes = Iterator[Outcome]
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
