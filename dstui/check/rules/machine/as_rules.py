"""What the machine means for the configuration: rules about the machine, as diagnostics with fixes.

Each recommendation is a rule with the piece's code. Only a Plan is judged: a bare configuration names no GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

from dstui.check.context import UNPROBED, Context, Problem, pointer
from dstui.check.rule import RULES, Problems, Rule
from dstui.check.rules.machine import (
    health,  # noqa: F401 - importing them registers their pieces
    placement,  # noqa: F401 - importing them registers their pieces
    variables,  # noqa: F401 - importing them registers their pieces
)
from dstui.check.rules.machine.recommendation import MACHINE_RULES, MachineRule, Recommendation, Requirement
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.catalogue import release
from dstui.plan.finding import Fix, Operation
from dstui.render.launch import HERE, RenderError, slots

ZERO = "zero_optimization"


def requirement_of(c: Context) -> Requirement:
    """What the configuration asks of the machine; worked out once for all pieces."""
    if "requirement" not in c.memo:
        c.memo["requirement"] = _requirement(c)
    requirement: Requirement = c.memo["requirement"]
    return requirement


def requirement_for(plan: Plan, machine: Machine) -> Requirement:
    """What a Plan asks of a machine."""
    return requirement_of(Context(plan.deepspeed, release(None), plan.job.integration, None, machine, plan, "deepspeed."))


def _requirement(c: Context) -> Requirement:
    plan = c.plan
    assert plan is not None
    cluster = plan.cluster
    used = _used(c)
    return Requirement(
        gpus=tuple(next(iter(used.values()))) if used and c.gpus else None,
        nodes=len(used) if used else cluster.num_nodes or (2 if cluster.hostfile else 1),
        ranks=len(next(iter(used.values()))) if used else None,
        filtered=any(value is not None for value in (cluster.include, cluster.exclude, cluster.num_gpus, cluster.num_nodes)),
        cpu=c.cpu_only,
        other_python=plan.job.python is not None,
        stage=c.stage,
        overlap_comm=c.on(f"{ZERO}.overlap_comm") if c.has(f"{ZERO}.overlap_comm") else None,
        offload=c.offload("optimizer"),
        nvme_path=c.text(f"{ZERO}.offload_optimizer.nvme_path") or None,
        super_offload=c.on(f"{ZERO}.offload_optimizer.super_offload"),
        hpz=int(c.number(f"{ZERO}.zero_hpz_partition_size") or 1),
        tensor_parallel=int(c.number("tensor_parallel.autotp_size") or 1),
        sequence_parallel=int(c.number("sequence_parallel_size") or 1),
        buckets=1 if c.has(f"{ZERO}.reduce_bucket_size") or c.has(f"{ZERO}.allgather_bucket_size") else None,
        quantized_weights=c.on(f"{ZERO}.zero_quantized_weights"),
        params=plan.model.params if plan.model else None,
        cpu_binding=cluster.cpu_binding,
        port=cluster.master_port if _rank_0_is_here(cluster.master_addr, used) else None,
        environment=dict(cluster.env),
    )


def _rank_0_is_here(address: str | None, used: Mapping[str, list[int]] | None) -> bool:
    """Whether rank 0 listens on this machine: it is the first host, and no other address is given for it."""
    return bool(used) and next(iter(used or ())) in HERE and (address is None or address in HERE)


def _used(c: Context) -> dict[str, list[int]] | None:
    """Host -> slots, of which the first host's stand for all; None where a hostfile tells, or the filters cannot be read."""
    assert c.plan is not None and c.machine is not None
    try:
        return slots(c.plan, c.machine)
    except RenderError:
        return None


def problem_of(recommendation: Recommendation, c: Context) -> Problem:
    """A recommendation as a rule's answer; its keys become a patch."""
    patch = tuple(_operation(c, path, value) for path, value in recommendation.sets)
    fix = Fix(recommendation.fix, patch or None) if recommendation.fix else None
    return Problem(f"^{recommendation.path}", recommendation.message, recommendation.why, fix=fix, severity=recommendation.level)


def _operation(c: Context, path: str, value: object) -> Operation:
    """The patch that writes a key of the Plan with the sections that it lacks."""
    assert c.plan is not None
    parts = path.split(".")
    depth = next((n for n in range(1, len(parts)) if not isinstance(c.plan.get(".".join(parts[:n])), Mapping)), len(parts))
    for name in reversed(parts[depth:]):
        value = {name: value}
    there = c.plan.get(".".join(parts[:depth])) is not None
    return {"op": "replace" if there else "add", "path": pointer(".".join(parts[:depth])), "value": value}


def _rule_of(machine_rule: MachineRule) -> Rule:
    def evaluate(c: Context) -> Problems:
        if c.plan is not None and c.machine is not None and c.machine.source != UNPROBED:
            for recommendation in machine_rule.evaluate(c.machine, requirement_of(c)):
                yield problem_of(recommendation, c)

    return Rule(
        machine_rule.code,
        machine_rule.level,
        machine_rule.title,
        evaluate,
        "run" if machine_rule.level == "error" else None,
        source=machine_rule.source,
    )


RULES.update({code: _rule_of(machine_rule) for code, machine_rule in MACHINE_RULES.items()})
