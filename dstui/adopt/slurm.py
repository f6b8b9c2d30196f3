"""Read hosts and slots of a SLURM allocation from its variables alone, without running `scontrol show hostnames`.

Source: the grammar of host lists in Slurm 22.05 (src/common/hostlist.c): `node[01-03,7],gpu1`, with several brackets per name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

from dstui.base.limits import MAX_RANKS, MAX_SLOTS
from dstui.plan.hostfile import HostfileError, host_problem

_NAME = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")


_DIRECTIVE = re.compile(r"(?m)^#SBATCH[ \t]+(--[a-z-]+|-[A-Za-z])(?:=|[ \t]*)([^\s#]+)")
_SET_BY: Mapping[str, tuple[str, ...]] = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--cpus-per-task": ("SLURM_CPUS_PER_TASK",),
    "--gpus-per-node": ("SLURM_GPUS_ON_NODE",),
    "--gres": ("SLURM_GPUS_ON_NODE",),
}
"""Option of sbatch -> the variables that have its number in the job."""
_GPUS = re.compile(r"\bgpu(?::[\w.-]+)?:(\d+)(?=,|$)")
"""The number of GPUs among generic resources: `gpu:a100:8,lscratch:100`."""
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-c": "--cpus-per-task"}
VARIES_BY_JOB = {"SLURM_JOB_ID": "1", "SLURM_JOBID": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
"""Variables of the process that runs a batch script; the number of the job is a stand-in."""


def batch_variables(text: str) -> dict[str, str]:
    """Return the SLURM variables that a batch script is known to find when it runs; empty without `#SBATCH` lines."""
    options = {_SHORT.get(option, option): value for option, value in _DIRECTIVE.findall(text)}
    if "--gres" in options:
        found = _GPUS.search(options["--gres"])
        options["--gres"] = found[1] if found else ""
    numbers = {name: value.rpartition(":")[2] for option, value in options.items() for name in _SET_BY.get(option, ())}
    return {**VARIES_BY_JOB, **{name: value for name, value in numbers.items() if value.isdecimal()}} if options else {}


def expand_nodelist(text: str) -> list[str]:
    """Expand a list of hosts such as `node[01-03,7],gpu1`, in order. Raises HostfileError if it is malformed."""
    text = text.strip()
    names = _NAME.findall(text)
    if not names or ",".join(names) != text:
        raise HostfileError(f"{text[:60]!r} is not a SLURM node list: node[01-03,7],gpu1")
    hosts: list[str] = []
    for name in names:
        for host in _expanded(name):
            if problem := host_problem(host):
                raise HostfileError(f"{host[:60]!r}: {problem}")
            hosts.append(host)
            if len(hosts) > MAX_RANKS:
                raise HostfileError(f"more than {MAX_RANKS:,} hosts")
    return hosts


def _expanded(name: str) -> Iterator[str]:
    """Yield all names of one with brackets."""
    parts = [_numbers(match[1]) if match[2] is None else [match[2]] for match in _PART.finditer(name)]
    return ("".join(words) for words in product(*parts))


def _numbers(ranges: str) -> list[str]:
    """Expand `01-03,7` to 01, 02, 03, 7, padded like the first number of the range."""
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or not first <= last <= first + MAX_RANKS:
            raise HostfileError(f"[{ranges[:60]}] is not a SLURM node range: [01-03,7]")
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
        if len(found) > MAX_RANKS:
            raise HostfileError(f"more than {MAX_RANKS:,} hosts")
    return found


def hosts_of_allocation(environment: Mapping[str, str]) -> dict[str, int] | None:
    """Return host -> slots of the current SLURM allocation; None outside of one. Raises HostfileError.

    The slots of a node are its GPUs if the allocation gives their number, else its tasks, else 1.
    """
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not nodes:
        return None
    hosts = expand_nodelist(nodes)
    if gpus := gpus_per_node(environment):
        return dict.fromkeys(hosts, gpus)
    tasks = _tasks(environment.get("SLURM_TASKS_PER_NODE") or environment.get("SLURM_STEP_TASKS_PER_NODE") or "")
    return dict(zip(hosts, tasks, strict=True)) if len(tasks) == len(hosts) else dict.fromkeys(hosts, 1)


def gpus_per_node(environment: Mapping[str, str]) -> int | None:
    """Return the GPUs on each node of the allocation (`8`, `a100:8`, or this node's list); None if unknown."""
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"):
        count = environment.get(name, "").rpartition(":")[2]
        if re.fullmatch(r"\d{1,4}", count) and 0 < int(count) <= MAX_SLOTS:
            return int(count)
    listed = environment.get("SLURM_JOB_GPUS") or environment.get("SLURM_STEP_GPUS") or ""
    return len(listed.split(",")) if re.fullmatch(r"\d+(,\d+)*", listed) else None


def _tasks(text: str) -> list[int]:
    """Expand `2(x3),1` to 2, 2, 2, 1; empty for other texts."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        match = _TASKS.fullmatch(part)
        if match is None or not 0 < int(match[1]) <= MAX_SLOTS:
            return []
        found += [int(match[1])] * min(int(match[2] or 1), MAX_RANKS)
    return found
