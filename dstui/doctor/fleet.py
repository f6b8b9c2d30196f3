"""Compare many hosts: which one differs from the others, and what changed since the fleet was accepted.

Only facts of the snapshots that stay the same while a host is used are compared. A fact that is unknown on all hosts is left out.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from dstui.adopt.slurm import expand_nodelist
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_file, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.doctor.case import Case, Verdict
from dstui.doctor.examine import Result, examine
from dstui.machine.codec import Maybe, Unknown, known
from dstui.machine.snapshot import Gpu, Machine
from dstui.plan.hostfile import HostfileError, parse_hostfile

Value: TypeAlias = str | int | None
"""A fact in comparable form: a number (bytes for a size), a text, or None for something missing or unlimited."""
Facts: TypeAlias = Mapping[str, Value]

CHECKS = ("reach", "driver", "gpu-count", "gpu-health", "xid", "shm", "memlock", "open-files", "rdma", "clock", "all-reduce")
"""The doctor's checks of one host that need no job."""
VERSION = 1


def _gpus(get: Callable[[Gpu], object]) -> Callable[[Machine], Value]:
    """Return a fact of all GPUs: `18` if they agree, `7 x 18, 1 x 17` if they do not; None without GPUs."""

    def fact(machine: Machine) -> Value:
        counts = Counter(str(get(gpu)) for gpu in machine.gpus)
        return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{count} x {what}" for what, count in counts.most_common()) or None

    return fact


def _nvlink(gpu: Gpu) -> str:
    link = gpu.nvlink
    return "none" if isinstance(link, Unknown) else f"{known(link.active, 'unknown')} of {known(link.count, 'unknown')}"


def _network(machine: Machine) -> Value:
    """Return speed and MTU of the interfaces that are up, without their names."""
    nics = [nic for nic in known(machine.host.nics, ()) if nic.state == "up" and not nic.virtual]
    return _counted(f"{known(nic.speed, 'unknown')} Mb/s mtu {known(nic.mtu, 'unknown')}" for nic in nics)


def _infiniband(machine: Machine) -> Value:
    return _counted(f"{known(port.gbps, 'unknown')} Gb/s {known(port.state, 'unknown')}" for port in known(machine.host.infiniband, ()))


def _mounts(machine: Machine) -> Value:
    return ", ".join(sorted(disk.mount for disk in known(machine.host.disks, ()) if not disk.local)) or None


def _counted(texts: Iterable[str]) -> Value:
    return ", ".join(f"{count} x {text}" for text, count in sorted(Counter(texts).items())) or None


FACTS: Mapping[str, Callable[[Machine], Maybe[Value | bool]]] = {
    "GPUs": lambda m: _counted(gpu.short_name for gpu in m.gpus),
    "GPU memory": _gpus(lambda gpu: known(gpu.memory_total, "unknown")),
    "GPU clock limit (MHz)": _gpus(lambda gpu: known(gpu.clock_sm_max, "unknown")),
    "GPU power limit (W)": _gpus(lambda gpu: known(gpu.power_limit, "unknown")),
    "ECC": _gpus(lambda gpu: known(gpu.ecc, "unknown")),
    "MIG": _gpus(lambda gpu: known(gpu.mig, "unknown")),
    "uncorrected memory errors": _gpus(lambda gpu: known(gpu.memory_errors, "unknown")),
    "NVLinks up": _gpus(_nvlink),
    "PCIe lanes": _gpus(lambda gpu: known(gpu.pcie_width, "unknown")),
    "NVSwitches": lambda m: m.host.nvswitches,
    "NVIDIA driver": lambda m: m.driver.version,
    "kernel module": lambda m: m.driver.kernel_module,
    "system": lambda m: m.host.system,
    "kernel": lambda m: m.host.kernel,
    "CPU": lambda m: m.host.cpu,
    "CPUs": lambda m: m.host.cpus_usable,
    "memory": lambda m: m.host.memory,
    "/dev/shm": lambda m: m.host.shm_total,
    "memlock": lambda m: m.host.memlock,
    "open files": lambda m: m.host.nofile,
    "network": _network,
    "InfiniBand": _infiniband,
    "network folders": _mounts,
    "Python": lambda m: m.software.python,
    "torch": lambda m: m.software.torch,
    "torch's CUDA": lambda m: m.software.torch_cuda,
    "deepspeed": lambda m: m.software.deepspeed,
    "CUDA toolkit": lambda m: m.software.cuda_toolkit,
}
"""The facts that hosts of one kind share."""
SIZES = ("memory", "/dev/shm", "memlock")
"""Facts in bytes. Alike hosts differ in these by what their firmware reserves."""
TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class HostReport:
    """One host compared to the others."""

    host: str
    facts: Facts
    """Empty if it could not be probed."""
    odd: Mapping[str, tuple[Value, Value]]
    """Fact -> its value here, and that of most hosts."""
    results: Sequence[Result]
    """The failed checks."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict on the host."""
        if any(result.verdict == "fail" for result in self.results):
            return "fail"
        return "warn" if self.odd or self.results else "ok"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All hosts, the deviating ones first."""

    reports: Sequence[HostReport]
    shared: Sequence[Result]
    """Checks that fail on every host that could be probed, one result for all: no host deviates by them."""

    @property
    def is_ready(self) -> bool:
        """Return whether no check fails and no host deviates."""
        return not self.shared and all(report.verdict == "ok" for report in self.reports)


@dataclass(frozen=True, slots=True)
class Change:
    """A difference from the baseline. Without a fact, the host itself was added or removed."""

    host: str
    fact: str | None
    was: Value
    now: Value


def parse_fleet(text: str) -> dict[str, int]:
    """Return host -> slots of a hostfile, or of a list of nodes such as `node[01-16]`. Raises FileProblem."""
    try:
        if is_file(text) or "/" in text:
            return parse_hostfile(read_text(Path(text)))
        return dict.fromkeys(expand_nodelist(text), 0)
    except HostfileError as error:
        raise FileProblem(f"--fleet {text}: {error}") from None


def facts_of(machine: Machine) -> Facts:
    """Return every fact of a host in comparable form."""
    values = {name: get(machine) for name, get in FACTS.items()}
    return {name: "unknown" if isinstance(v, Unknown) else str(v) if isinstance(v, bool | float) else v for name, v in values.items()}


def compare(cases: Sequence[Case]) -> Fleet:
    """Compare hosts with each other. Each fact is compared with the value that most of them have."""
    facts = {case.host: {} if case.failure and not case.ready else facts_of(case.machine) for case in cases}
    usual = {name: _most([own[name] for own in facts.values() if own], name) for name in FACTS}
    wrong = [result for result in examine(cases) if result.id in CHECKS and result.verdict in ("warn", "fail")]
    hosts_with = Counter((result.id, result.fix) for result in wrong)
    seen = sum(map(bool, facts.values()))
    everywhere = {what for what, count in hosts_with.items() if count == seen > 1}
    reports = [
        HostReport(
            host,
            own,
            {name: (value, usual[name]) for name, value in own.items() if not _alike(value, usual[name], name)},
            [result for result in wrong if result.host == host and (result.id, result.fix) not in everywhere],
        )
        for host, own in facts.items()
    ]
    order = {"fail": 0, "warn": 1, "ok": 2}
    reports.sort(key=lambda report: (order[report.verdict], -len(report.odd), -len(report.results)))  # stable: equal hosts keep their order
    return Fleet(reports, list({(result.id, result.fix): result for result in wrong if (result.id, result.fix) in everywhere}.values()))


def _most(values: Sequence[Value], name: str) -> Value:
    """Return the most common value; of equally common ones the first."""
    return max(values, key=lambda value: sum(_alike(value, other, name) for other in values), default=None)


def _alike(mine: Value, theirs: Value, name: str) -> bool:
    if name in SIZES and isinstance(mine, int) and isinstance(theirs, int):
        return abs(mine - theirs) <= TOLERANCE * max(mine, theirs)
    return mine == theirs


def save(reports: Sequence[HostReport], path: Path, *, replace: bool) -> None:
    """Write the facts of all hosts that answered as a baseline. Raises FileProblem."""
    hosts = {report.host: dict(report.facts) for report in sorted(reports, key=lambda report: report.host) if report.facts}
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_atomic(path, json.dumps({"version": VERSION, "made": made, "hosts": hosts}, indent=1) + "\n", replace=replace)


def read_baseline(path: Path) -> dict[str, Facts]:
    """Return host -> facts of a baseline. Raises FileProblem."""
    try:
        data = parse_json(read_text(path))
    except ValueError as error:
        raise FileProblem(f"{path}: {error}") from None
    hosts = data.get("hosts") if isinstance(data, dict) and data.get("version") == VERSION else None
    if not isinstance(hosts, dict) or not all(isinstance(facts, dict) for facts in hosts.values()):
        raise FileProblem(f"{path}: not a baseline that dstui doctor --fleet HOSTS --save FILE writes")
    plain = (str, int, type(None))
    return {host: {name: value for name, value in facts.items() if isinstance(value, plain)} for host, facts in hosts.items()}


def changes(reports: Sequence[HostReport], baseline: Mapping[str, Facts]) -> list[Change]:
    """Return the differences: hosts that were added or removed, and facts that differ if both sides have them."""
    found = [Change(host, None, "in the fleet", None) for host in baseline if host not in {report.host for report in reports}]
    for report in reports:
        before = baseline.get(report.host)
        if before is None:
            found += [Change(report.host, None, None, "in the fleet")] if report.facts else []
            continue
        both = (name for name in report.facts if name in before and not _alike(before[name], report.facts[name], name))
        found += [Change(report.host, name, before[name], report.facts[name]) for name in both]
    return found
