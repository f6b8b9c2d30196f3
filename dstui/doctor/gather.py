"""Gather what the doctor judges, in parallel: this machine, and every host of the Plan over ssh."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from dstui.base import child_python
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_there, read_text
from dstui.check.reference import add_float_types
from dstui.check.rules.machine.requirement import Requirement, requirement_for
from dstui.doctor.case import Case
from dstui.documents.open import allocation_of
from dstui.documents.trusted_python import is_own_interpreter, probe_python
from dstui.facts.model_files import read_models
from dstui.forecast.forecast import forecast
from dstui.hosts.ssh import Failure, is_address, meeting_address
from dstui.machine.child import run_command
from dstui.machine.probe import probe
from dstui.machine.remote import AT_ONCE, Program, probe_host
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.hostfile import HostfileError, is_named, parse_hostfile
from dstui.plan.launchers import BY_NAME
from dstui.render.launch import RenderError, interpreter
from dstui.render.spec import HERE, LaunchSpec
from dstui.render.target import Target

READY = Path(__file__).with_name("ready.py")
DEADLINE = 120.0
"""Seconds for a host; importing torch and deepspeed may take most of it."""
MEET_SECONDS = 8.0
"""Seconds that hosts wait for each other at rank 0's port."""
PORT = 29500
"""The launcher's default if the Plan names none (deepspeed/launcher/constants.py)."""
PLACES = (
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR"),
    *("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"),
)
"""Variables of the Plan that affect the doctor's results. Others, which may be secrets, are not sent."""


@dataclass(frozen=True, slots=True)
class JobOnHosts:
    """The job to check: the Plan's hosts with their slots, interpreter, folder and script."""

    plan: Plan | None
    slots: Mapping[str, int]
    python: str
    probe_with: str
    """The interpreter that probes: that of the ranks, or dstui's own without the user's consent to run the Plan's."""
    workdir: str
    script: str | None
    model: str | None = None
    """The folder of the model, if the Plan does not name a hub id."""
    hub: str | None = None
    """The hub id of the model, if the Plan names one."""
    problem: str | None = None
    """The reason why the hosts of the Plan are unknown."""
    launch: LaunchSpec | None = None
    """The launch spec; None if the Plan cannot be launched."""
    meeting: str = ""
    """The rendezvous address: an IP address or a name."""

    @property
    def asked(self) -> bool:
        """Return whether the probing interpreter is that of the ranks."""
        return self.plan is None or is_own_interpreter(self.plan) or self.probe_with != sys.executable

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the probing interpreter."""
        return child_python.options(self.probe_with)


def resolve_job(plan: Plan | None, machine: Machine) -> JobOnHosts:
    """Return the job of a Plan on this machine; without a Plan, a job that needs only this machine."""
    if plan is None:
        return JobOnHosts(None, {"localhost": 0}, sys.executable, sys.executable, str(Path.cwd()), None)
    workdir = plan.place(plan.job.workdir)
    script = plan.place(posixpath.join(plan.job.workdir, plan.job.script)) if plan.job.script else None
    problem, used, launch = None, None, None
    try:
        pool = parse_hostfile(read_text(Path(plan.place(plan.cluster.hostfile)))) if plan.cluster.hostfile else allocation_of(plan)
        target = Target(plan, machine, pool)
        used = target.slots
        with contextlib.suppress(RenderError):  # errors that do not concern its hosts
            launch = target.launch
    except (FileProblem, HostfileError, RenderError) as error:
        problem = str(error)
    if used and not all(map(is_named, used)):
        problem, used = f"cluster.hosts: {len(used)} hosts are requested and none is named: there is nothing to check", None
    hosts = {host: len(chosen) for host, chosen in used.items()} if used else {"localhost": 0}
    folder = _model(plan)
    hub = plan.model.source if plan.model and not folder and not (plan.model.source or "").startswith("{") else None
    return JobOnHosts(
        plan, hosts, interpreter(plan), probe_python(plan), workdir, script, folder, hub, problem, launch, _meeting(plan, launch, hosts)
    )


def _meeting(plan: Plan, launch: LaunchSpec | None, hosts: Mapping[str, int]) -> str:
    """Return the rendezvous address of several hosts. The first host is asked if the Plan does not say, as at a launch."""
    first = next(iter(hosts))
    if plan.cluster.master_addr is not None or len(hosts) < 2 or launch is None or launch.meets_by_name:
        return plan.cluster.master_addr or first.rpartition("@")[2]
    return meeting_address(first)


def _model(plan: Plan) -> str | None:
    """Return the model's source if it is a path: it looks like one, or exists. Otherwise it is a hub id."""
    source = plan.model.source if plan.model else None
    if not source or source.startswith("{"):
        return None
    path = plan.place(source)
    return path if source.startswith((".", "/", "~")) or is_there(path) else None


def gather_cases(
    plan: Plan | None,
    *,
    imports: bool = True,
    deadline: float = DEADLINE,
    machine: Machine | None = None,
    on_case: Callable[[Case], object] = lambda _case: None,
) -> tuple[JobOnHosts, tuple[Case, ...]]:
    """Return the job, and a case for each of its hosts, probed in parallel. A failure of a host never raises.

    `deadline`: seconds for a host; `machine`: this one, if it is known already. `on_case` is called with each case as soon as its host has
    answered, by the thread that asked.
    """

    here = machine or probe(python=probe_python(plan) if plan else sys.executable)
    job = resolve_job(plan, here)
    forecasts = _forecast(job, _look(job, here, imports, deadline, on_case))
    return job, tuple(replace(case, others=tuple(other for other in forecasts if other is not case)) for case in forecasts)


def gather_fleet(hosts: Mapping[str, int]) -> tuple[JobOnHosts, tuple[Case, ...]]:
    """Return the hosts as a job without a Plan, and a case for each of them. Never raises an exception for a failing host."""
    job = JobOnHosts(None, hosts, sys.executable, sys.executable, gettempdir(), None)
    return job, tuple(_look(job, probe(), False, DEADLINE))


def _look(
    job: JobOnHosts, here: Machine, imports: bool, deadline: float, on_case: Callable[[Case], object] = lambda _case: None
) -> list[Case]:
    """Probe all hosts of a job in parallel."""

    def examined(host: str) -> Case:
        case = _case(job, host, here, _wanted(job, host, token, imports), deadline)
        on_case(case)
        return case

    with _token(job) as token, ThreadPoolExecutor(min(max(1, len(job.slots)), AT_ONCE)) as pool:
        return list(pool.map(examined, job.slots))


def _forecast(job: JobOnHosts, found: list[Case]) -> list[Case]:
    """Return the cases with the forecast for each host, as if all were like it."""
    plan = job.plan
    if plan is None or (plan.model is None and not plan.models):
        return found
    facts, pool = read_models(plan), dict(job.slots) if plan.cluster.hostfile else None
    return [replace(case, facts=facts, pool=pool, forecast=forecast(plan, facts, case.machine, pool)) for case in found]


@contextlib.contextmanager
def _token(job: JobOnHosts) -> Iterator[str | None]:
    """Write a small file into the job's folder, by which other hosts show that they see the same folder; None if not needed."""
    path = Path(job.workdir, f".dstui-doctor-{secrets.token_hex(8)}")
    try:
        if job.plan is None or (len(job.slots) < 2 and all(host in HERE for host in job.slots)):
            yield None
            return
        with contextlib.suppress(OSError):
            path.write_text("dstui doctor tests whether hosts share this folder\n")
        yield str(path) if path.exists() else None
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _wanted(job: JobOnHosts, host: str, token: str | None, imports: bool) -> dict[str, Any]:
    """Return the argument of `ready.py` for one host."""
    names = list(job.slots)
    port = (job.plan.cluster.master_port if job.plan else None) or PORT
    several = len(names) > 1 and job.plan is not None  # hosts without a job need not find each other
    launcher = BY_NAME.get((job.plan.cluster.launcher if job.plan else None) or "ssh", BY_NAME["ssh"])
    return {
        "python": job.python,
        "script": job.script,
        "model": job.model,
        "hub": job.hub,
        "folders": [job.workdir],
        "token": token,
        "names": _names(job) if several else [],
        "listen": [port, len(names) - 1] if host == names[0] and (several or len(names) == 1) else None,
        "connect": [job.meeting, port] if several and host != names[0] else None,
        "seconds": MEET_SECONDS if several else 0.0,
        "imports": imports and job.asked,
        "modules": list(launcher.modules) if job.asked else [],
        "options": list(job.options),
        "programs": list(launcher.programs) if several else [],
        "env": {name: value for name, value in (job.plan.cluster.env if job.plan else {}).items() if name in PLACES},
    }


def _names(job: JobOnHosts) -> list[str]:
    """Return the names that each host has to resolve: those of all hosts, and the rendezvous address."""
    names = [host.rpartition("@")[2] for host in job.slots]
    return list(dict.fromkeys([*names, job.meeting]))


def _needed(job: JobOnHosts) -> tuple[str, ...] | None:
    """Return those of the names that the job needs; None if its launcher is unknown."""
    if job.launch is None:
        return None
    return tuple(dict.fromkeys([*job.launch.names_needed, *([] if is_address(job.meeting) else [job.meeting])]))


def _case(job: JobOnHosts, host: str, here: Machine, wanted: dict[str, Any], deadline: float) -> Case:
    began = time.time()
    local = host in HERE
    if local:
        machine, lines = here, run_command([job.probe_with, *job.options, str(READY)], deadline, stdin=json.dumps(wanted).encode())
        kind, reported = lines[-1]
        problem = None if kind == "done" else Failure("here", str(reported).splitlines()[-1], "name an interpreter in job.python that runs")
    else:
        view = probe_host(host, deadline=deadline, python=job.probe_with, extra=Program(READY, wanted))
        lines, machine, problem = list(view.lines), view.machine or Machine.unprobed(), view.failure
    ready = {name: value for kind, facts in lines if kind == "ready" for name, value in facts.items()}
    machine = add_float_types(machine, (ready.get("imports") or {}).get("types", {}))
    return Case(
        host=host,
        machine=machine,
        ready=ready,
        failure=problem,
        plan=job.plan,
        python=job.python,
        asked=job.asked,
        isolated=bool(job.options),
        slots=job.slots[host],
        requirement=_requirement(job, host, machine),
        here=local,
        hosts=tuple(job.slots),
        names_needed=_needed(job),
        meeting=job.meeting,
        skew=None if local else _skew(ready, began, time.time()),
        start=here,
        environment=dict(os.environ),
    )


def _requirement(job: JobOnHosts, host: str, machine: Machine) -> Requirement:
    """Return what the job needs of this host, whose machine was probed with the job's interpreter."""
    if job.plan is None:
        return Requirement()
    return replace(requirement_for(job.plan, machine), other_python=not job.asked, nodes=len(job.slots), ranks=job.slots[host] or None)


def _skew(ready: Mapping[str, Any], began: float, ended: float) -> float | None:
    """Return by how many seconds a host's clock is outside of the interval in which it was read here; 0 if inside."""
    clock = ready.get("clock")
    return None if clock is None else min(0.0, clock - began) + max(0.0, clock - ended)
