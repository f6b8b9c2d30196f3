"""The Target: a Plan with the Machine and hostfile that it runs on. A face makes one, and everything about a launch follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from dstui.base.dataclass import dataclass
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.env_file import EnvFiles
from dstui.plan.hostfile import placeholder_hosts
from dstui.render.launch import RenderError, hosts_of, launch_spec, runs_here, slots
from dstui.render.spec import LaunchSpec


@dataclass(frozen=True)
class Target:
    """A Plan, the Machine that starts it, and the content of the Plan's hostfile. Its methods read no file and probe no machine."""

    plan: Plan
    machine: Machine = field(default_factory=Machine.unprobed)
    pool: Mapping[str, int] | None = None
    """Host -> slots of the hostfile that cluster.hostfile names; None if the Plan names none or it could not be read."""
    env_files: EnvFiles = field(default_factory=EnvFiles)
    """The .deepspeed_env files where DeepSpeed's launcher looks."""

    @cached_property
    def slots(self) -> Mapping[str, list[int]] | None:
        """Host -> used slots; None if that depends on GPUs that were not probed. Raises RenderError."""
        return slots(self.plan, self.machine, self.pool)

    @cached_property
    def world_size(self) -> int | None:
        """The number of ranks; None if unknown: no GPU was probed, or DeepSpeed refuses a filter."""
        try:
            return sum(map(len, self.slots.values())) if self.slots is not None else None
        except RenderError:
            return None

    @cached_property
    def hosts_machine(self) -> Machine | None:
        """The machine that describes the hosts of the ranks: `machine` if they run on it or it is recorded; else None."""
        if self.plan.cluster.submits and not self.machine.recorded:
            return None
        try:
            named: Mapping[str, int] = hosts_of(self.plan, self.pool) or {}
        except RenderError:
            named = dict.fromkeys(placeholder_hosts(1), 1)  # several hosts with an unknown number of ranks each
        return self.machine if self.machine.recorded or runs_here(self.machine, named) else None

    @cached_property
    def launch(self) -> LaunchSpec:
        """The launch spec of the Plan. Raises RenderError."""
        return launch_spec(self.plan, self.machine, self.pool, found=self.env_files.variables)
