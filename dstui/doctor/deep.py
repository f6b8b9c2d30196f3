"""Run an all-reduce over all hosts: one rank on each (two on a single one), with the rendezvous address of the job.

It is over gloo first. Where all hosts have GPUs and gloo has worked, it is repeated on the GPUs over nccl.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from dstui.base import child_python
from dstui.doctor.case import Case
from dstui.doctor.gather import PORT, JobOnHosts
from dstui.hosts.ssh import python_command, ssh_command
from dstui.machine.child import Line, run_command

SECONDS = 90.0
"""Most of it is for torch's import from a cold disk."""
RANK = """\
import datetime, json, os, signal, sys
signal.alarm({alarm})
os.environ.update({environment!r})
import torch, torch.distributed as dist
backend = {backend!r}
dist.init_process_group(backend, timeout=datetime.timedelta(seconds={timeout}))
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else "cpu"
total = torch.tensor([float(dist.get_rank() + 1)], device=device)
dist.all_reduce(total)
print(json.dumps(["sum", total.item()]), flush=True)
dist.barrier()
dist.destroy_process_group()
print(json.dumps(["done", None]), flush=True)
"""


def all_reduce(job: JobOnHosts, found: Sequence[Case]) -> tuple[Case, ...]:
    """Return the cases, the first with the result of an all-reduce over all hosts."""
    lost = [case.host for case in found if case.failure]
    if lost:
        return _reported(found, {"problem": f"not tried: {lost[0]} cannot be reached"})
    deep = _meet(job, found, "gloo")
    if "ranks" in deep and _has_gpus(job, found):
        deep["nccl"] = _meet(job, found, "nccl")
    return _reported(found, deep)


def _has_gpus(job: JobOnHosts, found: Sequence[Case]) -> bool:
    """Return whether each rank of the all-reduce would have a GPU of its own, and the job uses GPUs."""
    on_cpu = job.plan is not None and job.plan.cluster.env.get("DS_ACCELERATOR") == "cpu"
    return not on_cpu and all(len(case.machine.gpus) >= (1 if len(job.slots) > 1 else 2) for case in found)


def _meet(job: JobOnHosts, found: Sequence[Case], backend: str) -> dict[str, Any]:
    """Return the number of ranks and the seconds of an all-reduce, or the problem."""
    began = time.monotonic()
    hosts = list(job.slots) if len(job.slots) > 1 else [*job.slots, *job.slots]
    with ThreadPoolExecutor(len(hosts)) as pool:
        answers = list(pool.map(lambda rank: _rank(job, found[min(rank, len(found) - 1)], rank, len(hosts), backend), range(len(hosts))))
    wanted = float(sum(range(1, len(hosts) + 1)))
    for host, lines in zip(hosts, answers, strict=True):
        if ("sum", wanted) not in lines:
            why = str(lines[-1][1]).strip().splitlines()[-1]
            return {"problem": f"{host}: {why}"}
    return {"ranks": len(hosts), "seconds": time.monotonic() - began}


def all_reduce_fleet(job: JobOnHosts, found: Sequence[Case]) -> tuple[Case, ...]:
    """Return the cases. The first has the result of an all-reduce over the reachable hosts."""
    reached = {case.host: case for case in found if not case.failure}
    if not reached:
        return tuple(found)
    among = replace(job, slots={host: slots for host, slots in job.slots.items() if host in reached})
    tried = {case.host: case for case in all_reduce(among, list(reached.values()))}
    return tuple(tried.get(case.host, case) for case in sorted(found, key=lambda case: case.host not in tried))


def _reported(found: Sequence[Case], deep: dict[str, Any]) -> tuple[Case, ...]:
    return tuple(replace(case, deep=deep) for case in found)


def _rank(job: JobOnHosts, case: Case, rank: int, world: int, backend: str) -> list[Line]:
    """Run one rank on one host, with its program on standard input."""
    plan = job.plan
    address = (plan.cluster.master_addr if plan else None) or ("127.0.0.1" if case.here and len(job.slots) < 2 else case.hosts[0])
    port = (plan.cluster.master_port if plan else None) or PORT
    environment = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(world)}
    environment["LOCAL_RANK"] = "0" if len(job.slots) > 1 else str(rank)
    if plan:
        environment |= {name: value for name, value in plan.cluster.env.items() if name.startswith(("GLOO", "NCCL"))}
    text = RANK.format(environment=environment, backend=backend, alarm=int(SECONDS), timeout=int(SECONDS / 2)).encode()
    if case.here:
        command = [job.probe_with, *child_python.options(job.probe_with), "-"]
    else:
        command = ssh_command(case.host, python_command(job.probe_with, *(() if job.asked else ("python3",))))
    return run_command(command, SECONDS, stdin=text)
