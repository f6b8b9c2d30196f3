"""Findings about the machine as findings of a Plan, with fixes that apply."""

from __future__ import annotations

from dstui.check import check_plan
from dstui.machine.snapshot import GIB, Host, Machine, NvLink
from dstui.machine.topology import islands
from dstui.plan import Plan, load
from dstui.plan.finding import Finding
from dstui.render.target import Target
from tests import machines
from tests.machines import A100

PLAN = """\
version: 1
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
cluster:
  include: localhost:0,2   # the two that were free
deepspeed:
  train_micro_batch_size_per_gpu: 1
  zero_optimization: {stage: 2}
"""


def two_pairs(**changes: object) -> Machine:
    """Return a machine with four GPUs in two NVLink pairs: 0 and 1, 2 and 3."""
    links = (("X", "NV4", "SYS", "SYS"), ("NV4", "X", "SYS", "SYS"), ("SYS", "SYS", "X", "NV4"), ("SYS", "SYS", "NV4", "X"))
    gpus = machines.gpus(4, nvlink=NvLink(count=4), **A100)
    facts = {"source": "this machine", "links": links, "host": Host(shm_total=64 * GIB), "islands": islands(links, {}, gpus)}
    return machines.machine(*gpus, **{**facts, **changes})


def machine_findings(plan: Plan, machine: Machine) -> list[Finding]:
    return [finding for finding in check_plan(Target(plan, machine)) if finding.code.startswith("MC")]


def test_suboptimal_gpu_choice_is_a_finding_with_line_and_fix() -> None:
    plan = load(PLAN)
    finding = next(finding for finding in machine_findings(plan, two_pairs()) if finding.code == "MC201")
    assert (finding.path, finding.line, finding.severity) == ("cluster.include", 4, "warning")
    assert finding.fix and finding.fix.patch
    better = plan.patch(list(finding.fix.patch))
    assert better.cluster.include == "localhost:0,1"
    assert "# the two that were free" in better.text
    assert "MC201" not in {found.code for found in machine_findings(better, two_pairs())}


def test_every_fix_removes_its_finding() -> None:
    plan = load(PLAN.replace("cluster:\n  include: localhost:0,2   # the two that were free\n", ""))
    for _ in range(9):
        fixes = [f.fix for f in machine_findings(plan, two_pairs()) if f.fix and f.fix.patch]
        if not fixes:
            break
        plan = plan.patch(list(fixes[0].patch or ()))
    assert plan.cluster.include == "localhost:0,1"
    assert plan.get("deepspeed.zero_optimization.overlap_comm") is True


def test_variable_of_the_plan_is_checked_against_the_machine() -> None:
    plan = load(PLAN + "  # end\n").set("cluster.env", {"NCCL_P2P_DISABLE": "1"}).set("cluster.include", "localhost:0,1")
    finding = next(finding for finding in machine_findings(plan, two_pairs()) if finding.code == "MC101")
    assert finding.path == "cluster.env.NCCL_P2P_DISABLE"
    assert "4 NVLinks between two GPUs stay unused" in finding.why


def test_taken_port_is_reported_if_rank_0_is_here() -> None:
    def found(cluster: str) -> list[Finding]:
        plan = load(PLAN.replace("  include: localhost:0,2   # the two that were free\n", cluster))
        return [f for f in machine_findings(plan, two_pairs(host=Host(shm_total=64 * GIB, ports=(29500,)))) if f.code == "MC021"]

    (finding,) = found("  master_port: 29500  # ours\n")
    assert (finding.path, finding.line) == ("cluster.master_port", 4) and finding.fix and finding.fix.patch
    freed = load(PLAN.replace("  include: localhost:0,2 ", "  master_port: 29500 ")).patch(list(finding.fix.patch))
    assert freed.cluster.master_port is None and "# the two" in freed.text
    assert found("  master_addr: localhost\n  master_port: 29500\n")
    for elsewhere in ("  cpu_ranks: 2\n", "  master_port: 29501\n", "  master_addr: node7\n  master_port: 29500\n"):
        assert found(elsewhere) == []
    assert found("  hosts: {node7: 2, node8: 2}\n  master_port: 29500\n") == []


def test_unknown_machine_gives_no_findings() -> None:
    assert machine_findings(load(PLAN), Machine.unprobed()) == []
    assert [f for f in check_plan(Target(load(PLAN))) if f.code.startswith("MC")] == []


def test_busy_gpu_of_a_machine_that_only_launches_is_no_finding() -> None:
    here, busy = load(PLAN), two_pairs(gpus=tuple(machines.gpus(4, **{**A100, "memory_used": 30 * GIB})))
    far = here.unset("cluster.include").set("cluster.hosts", {"h1": 2, "h2": 2})
    assert "MC202" in {finding.code for finding in machine_findings(here, busy)}
    assert machine_findings(far, busy) == []
