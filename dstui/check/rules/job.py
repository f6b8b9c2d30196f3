"""Rules about the job and the cluster: who reads the configuration, which ranks run it, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.check.context import Context, Problem
from dstui.check.rule import Problems, rule
from dstui.plan.finding import Fix, Operation, Severity
from dstui.plan.hostfile import HostfileError, select
from dstui.plan.launchers import ALL, NAMELESS

MPI = tuple(launcher.name for launcher in ALL if not launcher.filters)
EQUAL = tuple(launcher.name for launcher in ALL if launcher.equal_slots)


def about_the_plan(  # noqa: PLR0913 - all but the first three are named
    path: str, message: str, why: str = "", fix: Fix | None = None, says: str = "", *, severity: Severity | None = None
) -> Problem:
    """Return a problem outside of the deepspeed section, with a path from the Plan's root."""
    return Problem("^" + path, message, why=why, fix=fix, says=says, severity=severity)


def write(c: Context, path: str, value: Any) -> Operation:
    """Return an operation that writes a key outside of the deepspeed section, with its own section if that is missing."""
    assert c.plan is not None
    section, _, name = path.partition(".")
    if not c.plan.get(section):
        return {"op": "replace" if section in c.plan.data else "add", "path": f"/{section}", "value": {name: value}}
    return {"op": "add" if c.plan.get(path) is None else "replace", "path": f"/{section}/{name}", "value": value}


@rule("PL002", "error", when="launch", source="launcher/runner.py (user_script)")
def no_script(c: Context) -> Problems:
    """The Plan names no script."""
    if c.plan is not None and not c.plan.job.script and not c.plan.job.module and not c.plan.job.command:
        yield about_the_plan("job.script", "no script is named: give job.script, job.module or job.command")


@rule("PL004", "error", when="launch", says="include_str and exclude_str are mutually exclusive.", source="launcher/runner.py:267-382")
def include_and_exclude(c: Context) -> Problems:
    """include and exclude are both given."""
    if c.plan is not None and c.plan.cluster.include and c.plan.cluster.exclude:
        fix = Fix("remove cluster.exclude", ({"op": "remove", "path": "/cluster/exclude"},))
        yield about_the_plan("cluster.exclude", "include and exclude cannot be combined", fix=fix)


@rule("PL005", "error", when="launch", says="Cannot specify num_nodes/gpus with include/exclude", source="launcher/runner.py")
def filters_of_two_kinds(c: Context) -> Problems:
    """num_nodes or num_gpus together with include or exclude."""
    if c.plan is None:
        return
    cluster = c.plan.cluster
    for name in ("num_nodes", "num_gpus"):
        if getattr(cluster, name) and (cluster.include or cluster.exclude):
            fix = Fix(f"remove cluster.{name}", ({"op": "remove", "path": f"/cluster/{name}"},))
            yield about_the_plan(f"cluster.{name}", f"{name} cannot be combined with include or exclude", fix=fix)


@rule("PL006", "error", when="launch", source="launcher/runner.py:267-382")
def filter_names_nothing(c: Context) -> Problems:
    """A filter that names a missing host or slot, or leaves none."""
    cluster = c.plan.cluster if c.plan is not None else None
    if cluster is None or not c.hosts or (cluster.include and cluster.exclude):
        return
    for name in ("hosts", "include", "exclude", "num_nodes", "num_gpus"):
        if getattr(cluster, name):
            try:
                select(c.hosts, **({} if name == "hosts" else {name: getattr(cluster, name)}))
            except HostfileError as error:
                fix = Fix(f"remove cluster.{name}", ({"op": "remove", "path": f"/cluster/{name}"},)) if name != "hosts" else None
                yield about_the_plan(f"cluster.{name}", error.message, fix=fix)


@rule("PL009", "error", when="launch", says="backend does not support", source="launcher/multinode_runner.py")
def launcher_without_filters(c: Context) -> Problems:
    """A filter with a launcher that supports none."""
    if c.plan is None or c.plan.cluster.launcher not in MPI:
        return
    cluster = c.plan.cluster
    for name in ("include", "exclude", "num_nodes", "num_gpus"):
        if getattr(cluster, name):
            what = "worker include/exclusion" if name in ("include", "exclude") else "limiting num nodes/gpus"
            fix = Fix(f"remove cluster.{name}", ({"op": "remove", "path": f"/cluster/{name}"},))
            says = f"{cluster.launcher} backend does not support {what}"
            yield about_the_plan(f"cluster.{name}", f"{cluster.launcher} takes no {name}: shorten hosts instead", fix=fix, says=says)


@rule("PL010", "error", when="launch", says="requires same number of devices per node", source="launcher/multinode_runner.py")
def unequal_slots(c: Context) -> Problems:
    """A launcher that requires the same number of slots on every host."""
    cluster = c.plan.cluster if c.plan is not None else None
    if cluster is None or cluster.launcher not in EQUAL or len(set(c.hosts.values())) < 2 or cluster.include or cluster.exclude:
        return
    least, message = min(c.hosts.values()), f"{cluster.launcher} needs the same number of slots on every host"
    if cluster.hosts and least:
        value = dict.fromkeys(cluster.hosts, least)
        fix = Fix(f"use {least} slots on every host", ({"op": "replace", "path": "/cluster/hosts", "value": value},))
        yield about_the_plan("cluster.hosts", message, fix=fix)
    else:
        yield about_the_plan("cluster.hosts" if cluster.hosts else "cluster.hostfile", message)


@rule("PL013", "error", when="run", says="CUDA error: invalid device ordinal", source="launcher/runner.py:400-404")
def more_ranks_than_gpus(c: Context) -> Problems:
    """More ranks on this machine than it has GPUs."""
    if c.plan is None or not c.gpus:
        return
    cluster, gpus = c.plan.cluster, len(c.gpus)
    hosts = cluster.hosts or {}
    here = cluster.num_gpus if set(hosts) <= {"localhost"} and cluster.num_gpus else hosts.get("localhost", 0)
    if here > gpus and set(hosts) <= {"localhost"}:
        path = "cluster.num_gpus" if cluster.num_gpus else "cluster.hosts.localhost"
        fix = Fix(f"use {gpus}", ({"op": "replace", "path": "/" + path.replace(".", "/"), "value": gpus},))
        yield about_the_plan(
            path, f"{here} ranks, but this machine has {gpus} GPUs", "the launcher starts them all, and those without a GPU fail", fix
        )


@rule("PL014", "error", when="launch", says="At least one core needs to be assigned to each rank", source="utils/numa.py:105-120")
def more_ranks_than_cores(c: Context) -> Problems:
    """Ranks are bound to cores, but there are more ranks than cores."""
    if c.plan is None or c.machine is None or c.plan.cluster.cpu_binding != "deepspeed":
        return
    cores = c.machine.host.cores_usable
    fix = Fix("do not bind", ({"op": "remove", "path": "/cluster/cpu_binding"},))
    if (
        isinstance(cores, int)
        and c.world_size
        and not c.plan.cluster.hostfile
        and len(c.plan.cluster.hosts or "x") == 1
        and c.world_size > cores
    ):
        yield about_the_plan("cluster.cpu_binding", f"{c.world_size} ranks cannot be bound to {cores} cores", fix=fix)


@rule("PL015", "error", when="launch", source="utils/numa.py")
def no_numactl(c: Context) -> Problems:
    """Ranks should be bound, but numactl is not installed here."""
    software = c.machine.software if c.machine is not None else None
    if c.plan is not None and c.plan.cluster.cpu_binding and software is not None and software.numactl is None:
        fix = Fix("do not bind (or install numactl)", ({"op": "remove", "path": "/cluster/cpu_binding"},))
        yield about_the_plan("cluster.cpu_binding", "binding needs numactl, which is not installed here", fix=fix)


@rule("PL016", "error", when="launch", source="utils/numa.py:105-120")
def binding_to_gpu_memory(c: Context) -> Problems:
    """DeepSpeed binds ranks to NUMA nodes that are GPU memory, as on GH200."""
    numa = c.machine.host.numa if c.machine is not None else None
    if c.plan is not None and c.plan.cluster.cpu_binding == "deepspeed" and isinstance(numa, tuple) and any(not node.cpus for node in numa):
        fix = Fix("bind with numactl instead", ({"op": "replace", "path": "/cluster/cpu_binding", "value": "numactl"},))
        message = "some NUMA nodes here have no CPUs (GPU memory): --bind_cores_to_rank counts them in"
        yield Problem("^cluster.cpu_binding", message, fix=fix, severity="warning")


@rule("PL017", "error", when="launch", source="launcher/launch.py")
def dead_variables(c: Context) -> Problems:
    """KMP_AFFINITY is set, which --bind_cores_to_rank refuses."""
    if c.plan is not None and c.plan.cluster.cpu_binding == "deepspeed" and "KMP_AFFINITY" in c.plan.cluster.env:
        fix = Fix("remove KMP_AFFINITY", ({"op": "remove", "path": "/cluster/env/KMP_AFFINITY"},))
        yield about_the_plan("cluster.env.KMP_AFFINITY", "KMP_AFFINITY cannot be combined with binding by DeepSpeed", fix=fix)


@rule("PL020", "error", when="launch", says="Num nodes is >1 but no extra nodes available via hostfile", source="launcher/runner.py")
def nodes_without_hosts(c: Context) -> Problems:
    """Several nodes are requested, but no hosts are named."""
    cluster = c.plan.cluster if c.plan is not None else None
    if cluster is None or (cluster.num_nodes or 1) < 2 or cluster.hosts is not None or cluster.hostfile or isinstance(c.pool, Mapping):
        return
    if not c.hosts or cluster.launcher not in (None, *NAMELESS):
        fix = Fix("remove cluster.num_nodes", ({"op": "remove", "path": "/cluster/num_nodes"},))
        needs = "num_gpus (the ranks on each), " if not c.hosts else ""
        yield about_the_plan("cluster.num_nodes", f"num_nodes needs {needs}hosts or a hostfile", fix=fix)
        return
    message = (
        f"{cluster.num_nodes} hosts, none of them named: enough for sbatch, k8s, srun and torchrun, but dstui cannot start ranks there"
    )
    why = "to start the ranks from here, name the hosts in cluster.hosts"
    yield about_the_plan("cluster.num_nodes", message, why, severity="info")


BYTES_PER_PARAMETER = 16
"""For Adam with offloaded states: 32-bit weights, two moments and a gradient."""


@rule("DS318", "warning", source="runtime/zero/stage3.py:4016")
def offload_beyond_memory(c: Context) -> Problems:
    """The offloaded optimizer takes more RAM than this machine has."""
    memory = c.machine.host.memory if c.machine is not None else None
    params = c.plan.model.params if c.plan is not None and c.plan.model is not None else None
    if not params or not isinstance(memory, int) or c.stage == 0 or c.offload("optimizer") != "cpu" or c.plan is None:
        return
    hosts = len(c.plan.cluster.hosts or "x")
    needed = params * BYTES_PER_PARAMETER / hosts
    if needed > memory:
        have, want = memory / 2**30, needed / 2**30
        message = f"the optimizer of {params:.3g} parameters takes {want:.0f} GiB of RAM on each host, this one has {have:.0f}"
        why = "the kernel kills a process that needs more (exit status 137), without a message"
        path = "zero_optimization.offload_optimizer" if c.has("zero_optimization.offload_optimizer") else "zero_optimization"
        yield c.problem(path, message, why=why)


@rule("PL026", "error", when="launch", source="accelerate/utils/launch.py")
def machines_without_names(c: Context) -> Problems:
    """The accelerate section has several machines, but the cluster names none."""
    machines = c.plan.accelerate.get("num_machines") if c.plan is not None else None
    if c.plan is None or not isinstance(machines, int) or machines < 2 or c.hosts or c.plan.cluster.hostfile:
        return
    why = "an accelerate YAML does not name its machines, so all ranks would run on this one"
    yield about_the_plan("accelerate.num_machines", f"{machines} machines, and cluster.hosts names none", why)
