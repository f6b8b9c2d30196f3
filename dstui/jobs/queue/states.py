"""SLURM's job states: the meaning of each for a job of dstui, its exit status, and its description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Means = Literal["queued", "running", "ended", "failed", "stopped"]
"""queued: waits (again); running: has its nodes, and status.json is valid; ended: as the ranks' records say; failed, stopped: ended by
SLURM."""


@dataclass(frozen=True, slots=True)
class SlurmState:
    """The meaning of one state of SLURM."""

    means: Means
    exit_code: int | None = None
    """The job's exit status if SLURM ended it; None if that of the ranks counts."""
    says: str = ""
    """A description, without a full stop."""


TIME_OVER = 124
"""The exit status after the time limit, as in timeout(1)."""
KILLED, ENDED = 128 + 9, 128 + 15

STATES: Mapping[str, SlurmState] = {
    "PENDING": SlurmState("queued"),
    "REQUEUED": SlurmState("queued"),
    "REQUEUE_HOLD": SlurmState("queued", says="it was queued again and is held: scontrol release lets it start"),
    "REQUEUE_FED": SlurmState("queued"),
    "SPECIAL_EXIT": SlurmState("queued", says="it was queued again and is held: scontrol release lets it start"),
    "RESV_DEL_HOLD": SlurmState("queued", says="its reservation was deleted: scontrol release lets it start without one"),
    "CONFIGURING": SlurmState("running", says="its nodes are started"),
    "RUNNING": SlurmState("running"),
    "RESIZING": SlurmState("running"),
    "SIGNALING": SlurmState("running"),
    "SUSPENDED": SlurmState("running", says="SLURM has suspended it"),
    "STOPPED": SlurmState("running", says="SLURM has suspended it"),
    "STAGE_OUT": SlurmState("running"),
    "COMPLETING": SlurmState("running"),
    "COMPLETED": SlurmState("ended"),
    "FAILED": SlurmState("ended"),
    "FORGOTTEN": SlurmState("ended", says="SLURM no longer knows it"),
    "BOOT_FAIL": SlurmState("failed", 1, "a node did not start: launch it again"),
    "CANCELLED": SlurmState("stopped", ENDED, "it was cancelled by scancel, not by dstui"),
    "DEADLINE": SlurmState("failed", TIME_OVER, "its deadline passed before it ended"),
    "NODE_FAIL": SlurmState("failed", 1, "a node of it failed: launch it again, or let run.restarts queue it again"),
    "OUT_OF_MEMORY": SlurmState("failed", KILLED, "it used more memory than it had requested: raise cluster.slurm.mem"),
    "PREEMPTED": SlurmState("failed", ENDED, "a job of higher priority took its nodes: launch it again, or set run.restarts"),
    "REVOKED": SlurmState("failed", 1, "another cluster of the federation started it"),
    "TIMEOUT": SlurmState("failed", TIME_OVER, "its time was up: raise cluster.slurm.time, or let run.restarts queue it again"),
}
UNKNOWN = SlurmState("running", says="dstui does not know this state of SLURM")

NEVER = "it can never start like this: stop it, and change"
REASONS: Mapping[str, str] = {
    "Resources": "waits for free nodes",
    "Priority": "waits for jobs of higher priority",
    "BeginTime": "waits for the time at which it may begin",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": f"{NEVER} its dependency, which can no longer be met",
    "JobHeldUser": "is held: scontrol release lets it start",
    "JobHeldAdmin": "is held by an administrator",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "waits for nodes that are down, drained or reserved",
    "Nodes required for job are DOWN": "waits for nodes that are down, drained or reserved",  # the beginning of a sentence of slurmctld's
    "PartitionDown": "waits for its partition, which is down",
    "PartitionInactive": "waits for its partition, which is inactive",
    "PartitionNodeLimit": f"{NEVER} cluster.num_nodes: its partition has fewer nodes for one job",
    "PartitionTimeLimit": f"{NEVER} cluster.slurm.time: its partition allows less",
    "PartitionConfig": f"{NEVER} cluster.slurm.time, cluster.num_nodes or cluster.slurm.partition: its partition does not allow them",
    "AccountNotAllowed": f"{NEVER} cluster.slurm.account: its partition does not admit it",
    "InvalidAccount": f"{NEVER} cluster.slurm.account: there is no such account",
    "InvalidQOS": f"{NEVER} cluster.slurm.qos: there is no such QOS",
    "BadConstraints": f"{NEVER} cluster.slurm.constraint: no node has these features",
    "launch failed requeued held": "could not be started on its nodes and is held: scontrol release tries again",
}


def state_of(word: str) -> SlurmState:
    """Return the meaning of a state. squeue writes `CANCELLED by 1000`, and flags behind a comma or a plus."""
    return STATES.get(word.replace(",", " ").replace("+", " ").partition(" ")[0], UNKNOWN)


def describe_reason(reason: str) -> str:
    """Return in words why a job waits, including SLURM's own term."""
    name = reason.strip("()").partition(",")[0].strip()
    if not name or name == "None":
        return "waits for the scheduler"
    if name in REASONS:
        return f"{REASONS[name]} ({name})"
    if name.startswith(("QOS", "Assoc", "Max")):
        return f"waits for a limit of your account or QOS ({name})"
    return f"waits: {name}"
