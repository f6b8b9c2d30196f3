"""Run on the first node of a SLURM allocation, started by the job script, as the supervisor of the job in a folder.

    python -m dstui.jobs.control.in_allocation FOLDER BASE
FOLDER contains plan.yaml and, if dstui has submitted it, the status of a queued job. BASE is the folder from which relative paths in the
Plan start. A requeued job continues with its next attempt.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

from dstui.adopt.slurm import expand_nodelist
from dstui.base.files import FileProblem, read_text, reason
from dstui.base.output import say
from dstui.documents.plan_files import read_pool
from dstui.jobs.control.launch_record import launch_json
from dstui.jobs.control.start import LaunchError, fill, ready_spec
from dstui.jobs.queue.scheduler import cancel
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag, remember
from dstui.jobs.store.processes import SUPERVISES
from dstui.jobs.store.records import JobStatus, LaunchRecord, RestartPolicy
from dstui.jobs.store.status import finish, initial, ranks_of, requested_exit_code
from dstui.jobs.supervisor.restart import restart_arguments
from dstui.jobs.supervisor.supervisor import main as supervise
from dstui.machine.probe import probe
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, PlanError, load
from dstui.plan.holes import describe_open_holes, fill_holes, find_holes
from dstui.plan.hostfile import HostfileError
from dstui.render.launch import RenderError
from dstui.render.sbatch import for_cluster
from dstui.render.target import Target

SUBMITTING = 120.0
"""Seconds for the submission to write the number of the job."""
FILTERS = ("hostfile", "num_nodes", "num_gpus", "include", "exclude", "master_addr")
"""Keys of cluster that name hosts differently than the allocation does."""


def main(argv: list[str]) -> int:
    """Supervise the job until it has ended here. Return the exit status for SLURM."""
    folder, job = JobFolder(argv[0]), os.environ["SLURM_JOB_ID"]
    lock = _lock(folder)
    if lock is None:
        say(f"{folder.path} is supervised by another dstui, or does not exist on this node")
        return 1
    known = folder.read_status()
    try:
        tag = own_tag(folder, known) if known else uuid.uuid4().hex
    except NotOwn as why:
        say(f"{folder.path} {why}")
        return 1
    status = replace(known or initial(tag, {}, None), slurm_job=job)
    try:
        status = begin(folder, argv[1], status, tag, os.environ)
        folder.write_status(status)
        if known is None:
            folder.append_event(time.time(), "start", folder=str(folder.path))
            remember(folder, folder.name, status.started, tag)
    except (LaunchError, PlanError, FileProblem, HostfileError, RenderError, OSError) as error:
        text = reason(error) if isinstance(error, OSError) else str(error)
        say(text)
        folder.append_event(time.time(), "notice", text=f"nothing was started on the nodes: {text}")
        finish(folder, status, ranks_of(folder, status), None)
        return 1
    os.environ[SUPERVISES] = tag
    supervise([str(folder.path), str(lock)])
    if requested_exit_code(folder) is not None:
        cancel(job)  # so that SLURM too reports it as cancelled
    ended = folder.read_status()
    return (ended.exit_code or 0) if ended else 1


def _lock(folder: JobFolder) -> int | None:
    """Take the lock of the job once its submission has finished."""
    deadline = time.monotonic() + SUBMITTING
    while (lock := folder.lock()) is None and folder.path.is_dir() and time.monotonic() < deadline:
        time.sleep(0.1)
    return lock


def begin(folder: JobFolder, base: str, known: JobStatus, tag: str, environment: Mapping[str, str]) -> JobStatus:
    """Write the files of this attempt, and return its first status. Raises what a launch raises."""
    plan = fill_holes(load(read_text(folder.path / "plan.yaml"), str(folder.path / "plan.yaml"), base), environment)
    if still_open := find_holes(plan):
        raise LaunchError(describe_open_holes(still_open))
    target = Target(plan_for_nodes(plan, environment.get("SLURM_JOB_NODELIST", "")), probe())
    spec = ready_spec(target)
    begun = any(rank.state != "waiting" for rank in known.ranks.values())
    attempt = known.attempt + 1 if begun else known.attempt
    facts = launch_json(spec, target.plan, folder, tag)
    if begun:
        record = LaunchRecord.from_json(facts)
        more, how = restart_arguments(record or LaunchRecord(restarts=RestartPolicy()), known.started or 0.0)
        facts["args"] = [*facts["args"], *more]
        folder.append_event(time.time(), "notice", text=f"attempt {attempt} starts {how}")
    fill(target, folder, facts, tag)
    folder.prepare(attempt)
    fresh = initial(tag, spec.ranks, None, () if spec.local else spec.hosts)
    return replace(fresh, attempt=attempt, started=(known.started if begun else None) or fresh.started, slurm_job=known.slurm_job)


def plan_for_nodes(plan: Plan, nodelist: str) -> Plan:
    """Return the Plan for the nodes that SLURM has chosen: of its own hosts only the number of ranks on each counts."""
    slots = for_cluster(plan, Machine.unprobed(), read_pool(plan))[1]
    nodes = expand_nodelist(nodelist)
    for name in FILTERS:
        if getattr(plan.cluster, name) is not None:
            plan = plan.set(f"cluster.{name}", None)
    plan = plan.set("cluster.hosts", dict.fromkeys(nodes, slots) if len(nodes) > 1 else {"localhost": slots})
    return plan.set("cluster.launcher", "slurm" if len(nodes) > 1 else "local")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
