"""Rules that compare a job for SLURM's queue with the offers of the cluster. They apply only if the cluster's offers were requested."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.cluster import replace
from dstui.check.rules.job import about_the_plan
from dstui.machine.slurm_offers import UNLIMITED, Partition, format_time, seconds_of
from dstui.plan.finding import Fix

SLURM = "cluster.slurm."
MAX_NAMES = 8
"""The maximum number of names in a message."""
TIMES = "minutes, HH:MM:SS or DAYS-HH:MM:SS"


def _partition(c: Context) -> Partition | None:
    """Return the partition in which the job would run, if it is known."""
    if c.plan is None or c.slurm is None or not c.plan.cluster.submits:
        return None
    return c.slurm.partition(c.plan.cluster.slurm.partition)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "") if names else "none"


@rule("PL052", "error", when="launch", source="sbatch(1), --partition")
def unknown_partition(c: Context) -> Problems:
    """The cluster has no such partition, or the partition accepts no jobs now."""
    if c.plan is None or c.slurm is None or not c.plan.cluster.submits:
        return
    asked, path = c.plan.cluster.slurm.partition, f"{SLURM}partition"
    offered = tuple(one.name for one in c.slurm.partitions)
    unknown = [name for name in asked.split(",") if name not in offered] if asked else []
    if unknown:
        other = next((one.name for one in c.slurm.partitions if one.default), offered[0] if len(offered) == 1 else "")
        fix = replace(path, other, f"set {path} to {other}") if other else None
        yield about_the_plan(path, f"this cluster has no partition {unknown[0]}: it has {_names(offered)}", fix=fix)
    elif not asked and not any(one.default for one in c.slurm.partitions):
        yield about_the_plan(path, f"this cluster has no default partition: name one of {_names(offered)}")
    elif (found := _partition(c)) is not None and not found.up:
        yield about_the_plan(path, f"the partition {found.name} is down: the job waits until it is up again", severity="warning")


@rule("PL053", "error", when="launch", source="sbatch(1), --time")
def time_over_the_limit(c: Context) -> Problems:
    """The time limit is invalid or longer than the partition allows."""
    time, path = c.plan.cluster.slurm.time if c.plan is not None else None, f"{SLURM}time"
    if time is None or c.plan is None or not c.plan.cluster.submits:
        return
    asked, found = seconds_of(time), _partition(c)
    limit = found.seconds if found is not None else None
    if asked is None and time.upper() not in UNLIMITED:
        yield about_the_plan(path, f"{time[:40]!r} is not a SLURM time: {TIMES}")
    elif limit is not None and found is not None and (asked is None or asked > limit):
        most = format_time(limit)
        why = "SLURM would refuse the job, or leave it pending"
        fix = replace(path, most, f"set {path} to {most}")
        yield about_the_plan(path, f"the partition {found.name} allows {most} at most", why, fix)


@rule("PL054", "error", when="launch", source="sbatch(1), --nodes, --gpus-per-node")
def more_than_the_partition_has(c: Context) -> Problems:
    """The job requests more nodes, GPUs or CPUs than the partition allows."""
    found = _partition(c)
    if found is None or c.plan is None:
        return
    cluster, slots = c.plan.cluster, list(c.hosts.values())
    nodes, each = len(slots) or 1, max(slots, default=cluster.num_gpus or 0)
    on_cpus = cluster.env.get("DS_ACCELERATOR") == "cpu"
    if found.nodes is not None and nodes > found.nodes:
        path = "cluster.num_nodes" if cluster.num_nodes else "cluster.hosts"
        yield about_the_plan(path, f"{nodes} nodes are requested, and the partition {found.name} gives a job {found.nodes} at most")
    if found.gpus is not None and not on_cpus and not re.match(r"gpu", cluster.slurm.gres or "") and each > found.gpus:
        path = "cluster.num_gpus" if cluster.num_gpus else "cluster.hosts"
        message = f"{each} GPUs of each node are requested, and no node of the partition {found.name} has more than {found.gpus}"
        yield about_the_plan(path, message, "" if found.gpus else "ranks on CPUs: cluster.env.DS_ACCELERATOR: cpu")
    cpus = cluster.slurm.cpus_per_task
    if cpus is not None and found.cpus is not None and cpus > found.cpus:
        message = f"{cpus} CPUs of each node are requested, and no node of the partition {found.name} has more than {found.cpus}"
        yield about_the_plan(f"{SLURM}cpus_per_task", message)


@rule("PL055", "error", when="launch", source="sbatch(1), --account, --qos")
def refused_account(c: Context) -> Problems:
    """The account or QOS is not one of the user's, or the partition does not admit it."""
    found = _partition(c)
    if c.plan is None or c.slurm is None or not c.plan.cluster.submits:
        return
    for name, own, admitted in (
        ("account", c.slurm.accounts, found.accounts if found else None),
        ("qos", c.slurm.qos, found.qos if found else None),
    ):
        asked = getattr(c.plan.cluster.slurm, name)
        if asked and own and asked not in own:
            yield about_the_plan(f"{SLURM}{name}", f"{asked} is not one of your {_word(name)}s: you have {_names(own)}")
        elif asked and found is not None and admitted is not None and asked not in admitted:
            message = f"the partition {found.name} does not admit the {_word(name)} {asked}: it admits {_names(admitted)}"
            yield about_the_plan(f"{SLURM}{name}", message)


@rule("PL056", "warning", source="docs/howto/kubernetes.md")
def job_folder_in_the_pod(c: Context) -> Problems:
    """The job folder of a Kubernetes job is on none of its volumes."""
    asked = c.plan.cluster.kubernetes if c.plan is not None else None
    if asked is None or not asked.job_folder:
        return
    if not any(PurePosixPath(asked.job_folder).is_relative_to(mount) for mount in asked.volumes):
        fix = Fix("put a volume there: cluster.kubernetes.volumes: {/data: CLAIM}, and job_folder: /data/runs")
        message = f"{asked.job_folder} is on none of cluster.kubernetes.volumes: the logs go with the pods"
        yield about_the_plan("cluster.kubernetes.job_folder", message, fix=fix)


def _word(name: str) -> str:
    return "QOS" if name == "qos" else name
