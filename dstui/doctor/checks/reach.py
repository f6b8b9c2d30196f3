"""Checks of whether a host can be used at all, and whether it is like the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dstui.base.files import FileProblem, read_text
from dstui.base.text import counted
from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.documents.trusted_python import OPTION
from dstui.machine.codec import Unknown
from dstui.plan.hostfile import HostfileError, parse_hostfile

Outcomes = Iterator[Outcome]
SKEW_SECONDS = 2.0
UNASKED = "the Plan's interpreter was not run"


@doctor_check("hostfile", once=True)
def hostfile(case: Case) -> Outcomes:
    """DeepSpeed's launcher would accept the Plan's hostfile."""
    name = case.plan.cluster.hostfile if case.plan else None
    if not case.plan or not name:
        yield Outcome("skipped", "the Plan names no hostfile")
        return
    path = Path(case.plan.place(name))
    try:
        hosts = parse_hostfile(read_text(path))
    except (FileProblem, HostfileError) as error:
        yield Outcome(
            "fail", f"{path}: {error}" if isinstance(error, HostfileError) else str(error), "correct the hostfile: HOST slots=N per line"
        )
        return
    yield Outcome("ok", f"{counted(len(hosts), 'host')}, {counted(sum(hosts.values()), 'slot')}")


@doctor_check("reach")
def reach(case: Case) -> Outcomes:
    """The host answers; another host over ssh without a password."""
    if case.failure:
        yield Outcome("fail", case.failure.problem, case.failure.fix)
    else:
        yield Outcome("ok", "this machine" if case.here else "answers over ssh, without a password")


@doctor_check("python")
def python(case: Case) -> Outcomes:
    """The interpreter of the ranks is there, at the same path and of the same version on every host."""
    if case.ready.get("python_found") is False:
        fix = "a shared virtual environment, the same path on every host, or job.python"
        yield Outcome("fail", f"no interpreter at {case.python}", fix)
        return
    if not case.asked:
        observed = f"{case.python}, which the Plan names, was not run, because you have not agreed to that yet: its packages are unknown"
        yield Outcome("warn", observed, f"dstui doctor PLAN {OPTION} (it is remembered)")
        return
    yield from _same(
        case, "Python", lambda c: c.machine.software.python, "use one virtual environment on a shared folder, or the same on each host"
    )


@doctor_check("versions")
def versions(case: Case) -> Outcomes:
    """torch, its CUDA, and DeepSpeed are the same on every host."""
    if not case.others or not case.asked:
        yield Outcome("skipped", "one host" if not case.others else UNASKED)
        return
    for name, fact in (
        ("torch", lambda c: c.machine.software.torch),
        ("torch's CUDA", lambda c: c.machine.software.torch_cuda),
        ("deepspeed", lambda c: c.machine.software.deepspeed),
        ("NVIDIA driver", lambda c: c.machine.driver.version),
    ):
        yield from _same(case, name, fact, "install the same versions on every host: a constraints file, a shared environment, a container")


def _same(case: Case, name: str, fact: Callable[[Case], object], fix: str) -> Outcomes:
    """Compare a fact with that of rank 0's host."""
    first = next((other for other in case.others if other.first), case)
    mine, theirs = fact(case), fact(first)
    if isinstance(mine, Unknown) or isinstance(theirs, Unknown) or mine == theirs:
        yield Outcome("ok", f"{name} {mine if mine is not None else 'not installed'}")
    else:
        yield Outcome("fail", f"{name} {mine or 'not installed'} here, {theirs or 'not installed'} on {first.host}", fix)


@doctor_check("clock")
def clock(case: Case) -> Outcomes:
    """The clocks of the hosts agree."""
    if case.skew is None:
        yield Outcome("skipped", "the clock that the others are compared with")
    elif abs(case.skew) > SKEW_SECONDS:
        ahead = "ahead of" if case.skew > 0 else "behind"
        fix = "turn on time synchronisation (chronyd or systemd-timesyncd)"
        yield Outcome("warn", f"{abs(case.skew):.0f} s {ahead} this machine's: logs interleave wrongly, and timeouts differ", fix)
    else:
        yield Outcome("ok", "within 2 s")
