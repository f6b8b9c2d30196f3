"""The requirements of a job on a machine, from a Plan's configuration or from the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.check.context import Context
from dstui.machine.snapshot import Gpu, Machine
from dstui.plan import Plan
from dstui.plan.accelerate_keys import sp_size
from dstui.plan.catalogue import ZERO_SECTION, release
from dstui.render.launch import RenderError, slots
from dstui.render.spec import HERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The requirements of a job, as far as the rules about machines depend on them. The default requires everything."""

    gpus: tuple[int, ...] | None = None
    """The used slots of this machine; None = all."""
    ranks: int | None = None
    """Ranks on one host; None = one for each GPU."""
    filtered: bool = False
    """True if slots are selected on the launcher's command line."""
    nodes: int = 1
    cpu: bool = False
    other_python: bool = False
    """True if the ranks run under another interpreter than the one whose packages are in the Machine."""
    stage: int = 0
    overlap_comm: bool | None = None
    """None if it is not set."""
    offload: str = "none"
    """The place of the optimizer's state: none, cpu, nvme."""
    nvme_path: str | None = None
    super_offload: bool = False
    hpz: int = 1
    tensor_parallel: int = 1
    sequence_parallel: int = 1
    buckets: int | None = None
    """Elements in the reduce and the allgather bucket together, if both are set."""
    quantized_weights: bool = False
    params: float | None = None
    cpu_binding: str | None = None
    port: int | None = None
    """The port on which rank 0 will listen, if that is on this machine and was chosen beforehand."""
    integration: str = ""
    """The reader of the configuration, which is imported for it; "" without a Plan."""
    reader_is_seen: bool = True
    """False if the script is known to read the configuration in another way."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The Plan's variables for the ranks."""

    def slots(self, machine: Machine) -> tuple[int, ...]:
        """Return the used GPUs of the machine."""
        there = tuple(gpu.index for gpu in machine.gpus)
        return there if self.gpus is None else tuple(gpu for gpu in sorted(self.gpus) if gpu in there)

    def variables(self, machine: Machine) -> dict[str, str]:
        """Return the variables of the ranks: the Plan's, which override those of dstui's environment."""
        return {**machine.host.environment, **self.environment}

    def chosen(self, machine: Machine) -> tuple[Gpu, ...]:
        """Return the GPUs of `slots`."""
        return tuple(machine.gpus[gpu] for gpu in self.slots(machine))


def requirement_of(c: Context) -> Requirement:
    """Return what the configuration needs of the machine; computed once for all rules."""
    if "requirement" not in c.memo:
        c.memo["requirement"] = _requirement(c)
    requirement: Requirement = c.memo["requirement"]
    return requirement


def requirement_for(plan: Plan, machine: Machine) -> Requirement:
    """Return what a Plan needs of a machine."""
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
        overlap_comm=c.on(f"{ZERO_SECTION}.overlap_comm") if c.has(f"{ZERO_SECTION}.overlap_comm") else None,
        offload=c.offload("optimizer"),
        nvme_path=c.text(f"{ZERO_SECTION}.offload_optimizer.nvme_path") or None,
        super_offload=c.on(f"{ZERO_SECTION}.offload_optimizer.super_offload"),
        hpz=int(c.number(f"{ZERO_SECTION}.zero_hpz_partition_size") or 1),
        tensor_parallel=int(c.number("tensor_parallel.autotp_size") or 1),
        sequence_parallel=int(c.number("sequence_parallel_size") or sp_size(plan)),
        buckets=1 if c.has(f"{ZERO_SECTION}.reduce_bucket_size") or c.has(f"{ZERO_SECTION}.allgather_bucket_size") else None,
        quantized_weights=c.on(f"{ZERO_SECTION}.zero_quantized_weights"),
        params=plan.model.params if plan.model else None,
        cpu_binding=cluster.cpu_binding,
        port=cluster.master_port if _rank_0_is_here(cluster.master_addr, used) else None,
        integration="" if plan.job.command else c.integration,
        reader_is_seen=c.facts is None or c.integration in (c.facts.integration, c.facts.reader),
        environment=dict(cluster.env),
    )


def _rank_0_is_here(address: str | None, used: Mapping[str, list[int]] | None) -> bool:
    """Return whether rank 0 listens on this machine: it is the first host, and the Plan sets no other address."""
    return bool(used) and next(iter(used or ())) in HERE and (address is None or address in HERE)


def _used(c: Context) -> dict[str, list[int]] | None:
    """Return host -> slots, assuming that all hosts are like the first; None if a hostfile decides, or the filters are unreadable."""
    assert c.plan is not None and c.machine is not None
    try:
        return slots(c.plan, c.machine)
    except RenderError:
        return None
