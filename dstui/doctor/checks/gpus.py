"""Checks of GPUs: present, healthy, alike and free."""

from __future__ import annotations

from collections.abc import Iterator

from dstui.base.text import counted
from dstui.check.rules.machine.machine_finding import MachineFinding
from dstui.check.rules.machine.machine_findings import check_machine
from dstui.doctor.case import Case, Outcome, Verdict, doctor_check
from dstui.machine.choice import is_busy
from dstui.machine.codec import Unknown

Outcomes = Iterator[Outcome]
VERDICT: dict[str | None, Verdict] = {"error": "fail", "warning": "warn", "info": "ok"}
HEALTH = ("MC002", "MC003", "MC004", "MC005", "MC006", "MC007", "MC008", "MC010", "MC012", "MC015", "MC020")
"""The findings about the health of GPUs and of their links."""


def findings_with_codes(case: Case, *codes: str) -> list[MachineFinding]:
    """Return the machine findings with these codes for this host that are warnings or errors."""
    return [finding for finding in check_machine(case.machine, case.requirement) if finding.code in codes and finding.level != "info"]


def outcome_of(finding: MachineFinding) -> Outcome:
    """Convert a machine finding to an outcome."""
    return Outcome(VERDICT[finding.level], finding.message, finding.fix or None)


@doctor_check("driver")
def driver(case: Case) -> Outcomes:
    """NVIDIA's driver answers, if there are GPUs."""
    found = findings_with_codes(case, "MC001")
    if found:
        yield Outcome("fail", found[0].message, found[0].fix)
    elif case.machine.gpus:
        yield Outcome("ok", f"driver {case.machine.driver.version}, CUDA up to {case.machine.driver.cuda}")
    else:
        yield Outcome("skipped", "no NVIDIA GPU here")


@doctor_check("gpu-count")
def count(case: Case) -> Outcomes:
    """There is a GPU for each rank."""
    gpus = [gpu.index for gpu in case.machine.gpus if gpu.problem is None]
    ranks = counted(case.slots, "rank")
    if not case.slots:
        yield Outcome("skipped", f"{counted(len(gpus), 'GPU')}; the Plan requests no number")
    elif not case.machine.gpus:
        elsewhere = [other.host for other in case.others if other.machine.gpus]
        if elsewhere:
            fix = "leave this host out, or repair its driver"
            yield Outcome("fail", f"{ranks}, but no GPU here; there are some on {elsewhere[0]}", fix)
        else:
            yield Outcome("ok", f"{ranks} on the CPU")
    elif case.slots > len(gpus):
        fix = f"set the slots of {case.host} to {len(gpus)}; if more are installed: dmesg | grep -i xid"
        yield Outcome("fail", f"{ranks}, but {counted(len(gpus), 'GPU')}", fix)
    else:
        yield Outcome("ok", f"{ranks} on {counted(len(gpus), 'GPU')}")


@doctor_check("gpu-health")
def health(case: Case) -> Outcomes:
    """No GPU is lost, throttled, badly connected or in a mode that forbids training."""
    found = findings_with_codes(case, *HEALTH)
    yield from map(outcome_of, found)
    if not found:
        yield Outcome("ok" if case.machine.gpus else "skipped", "nothing wrong is reported" if case.machine.gpus else "no NVIDIA GPU here")


@doctor_check("gpu-models")
def models(case: Case) -> Outcomes:
    """All GPUs of the job are of one kind."""
    names = {gpu.short_name for gpu in case.requirement.chosen(case.machine)}
    everywhere = names | {gpu.short_name for other in case.others for gpu in other.requirement.chosen(other.machine)}
    if not names:
        yield Outcome("skipped", "no NVIDIA GPU here")
    elif len(everywhere) > 1:
        fix = "use the hosts and GPUs of one kind (include), or expect the pace of the slowest"
        yield Outcome("warn", f"{', '.join(sorted(names))} here; in the whole job {', '.join(sorted(everywhere))}", fix)
    else:
        yield Outcome("ok", f"all {names.pop()}")


@doctor_check("gpu-idle")
def idle(case: Case) -> Outcomes:
    """No other process uses the chosen GPUs."""
    chosen = case.requirement.chosen(case.machine)
    taken = [gpu for gpu in chosen if is_busy(gpu)]
    for gpu in taken:
        processes = () if isinstance(gpu.processes, Unknown) else gpu.processes
        who = f" by pid {processes[0].pid} ({processes[0].name or 'of another container'})" if processes else ""
        yield Outcome("warn", f"GPU {gpu.index} is in use{who}", f"leave GPU {gpu.index} out (exclude), or end that process")
    if not taken:
        yield Outcome("ok" if chosen else "skipped", "free" if chosen else "no NVIDIA GPU here")


XIDS = {
    "48": "an uncorrectable memory error",
    "62": "the GPU's micro-controller has halted",
    "63": "rows of memory are being replaced",
    "64": "rows of memory could not be replaced",
    "74": "an NVLink error",
    "79": "the GPU has fallen off the bus",
    "92": "many single-bit memory errors",
    "94": "a contained memory error",
    "95": "an uncontained memory error",
    "119": "the GPU's system processor does not answer",
    "120": "an error of the GPU's system processor",
    "140": "an unrecovered memory error",
}
"""NVIDIA's error numbers that mean a hardware fault; 13, 31, 43 and 45 are caused by programs."""


@doctor_check("xid")
def xid(case: Case) -> Outcomes:
    """The kernel's log has no hardware error of a GPU."""
    reported = case.ready.get("xids")
    grave = {number: count for number, count in (reported or {}).items() if number in XIDS}
    if not case.machine.gpus and not case.machine.host.pci_gpus:
        yield Outcome("skipped", "no NVIDIA GPU here")
    elif reported is None:
        yield Outcome("skipped", "this user may not read the kernel's log")
    elif grave:
        words = "; ".join(f"Xid {number} ({count} x), {XIDS[number]}" for number, count in grave.items())
        fix = "drain the node, reset the GPU (nvidia-smi --gpu-reset), see dmesg"
        yield Outcome("warn", f"since the start of the system: {words}", fix)
    else:
        yield Outcome("ok", "no hardware error since the start of the system")
