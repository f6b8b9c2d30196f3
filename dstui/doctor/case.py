"""A case is one host with everything known about it and the Plan; a check judges a case.

@doctor_check("shm")
def shared_memory(case):
    "Shared memory is large enough for the ranks of a host."
    yield Outcome("ok", "64 GB in /dev/shm")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.check.rules.machine.requirement import Requirement
from dstui.forecast.forecast import Forecast
from dstui.forecast.model import ModelFacts
from dstui.hosts.ssh import Failure
from dstui.machine.snapshot import Machine
from dstui.plan import Plan

Verdict = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check on a host."""

    verdict: Verdict
    observed: str
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One host with the facts that checks judge."""

    host: str
    machine: Machine
    ready: Mapping[str, Any] = field(default_factory=dict)
    """The facts that `ready.py` found there; empty if it was not run."""
    failure: Failure | None = None
    """The reason why the host could not be probed, or not completely."""
    plan: Plan | None = None
    python: str = ""
    """The interpreter of the ranks."""
    asked: bool = True
    """True if that interpreter was asked about the host's software; otherwise it was dstui's own, or any that exists."""
    isolated: bool = False
    """True if it was run with -I, which ignores PYTHONPATH and the user's own site-packages."""
    slots: int = 0
    """Ranks on this host; 0 without a Plan."""
    requirement: Requirement = field(default_factory=Requirement)
    """The Plan's requirements on a host's GPUs."""
    here: bool = True
    hosts: tuple[str, ...] = ("localhost",)
    """All hosts of the job, rank 0's first."""
    names_needed: tuple[str, ...] | None = None
    """The names that every host must resolve; None without a launch: then all."""
    meeting: str = ""
    """The rendezvous address: an IP address or a name; "" without a launch."""
    others: tuple[Case, ...] = ()
    """The other hosts, for comparison. Their own `others` are empty."""
    skew: float | None = None
    """Seconds by which the host's clock differs from this machine's, at least."""
    start: Machine = field(default_factory=Machine.unprobed)
    """The machine where dstui runs, from which the launcher would start."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment on the host."""
    facts: ModelFacts | Mapping[str, ModelFacts] | None = None
    """The facts of the Plan's model; None if it names none."""
    pool: Mapping[str, int] | None = None
    """The slots of the Plan's hostfile."""
    forecast: Forecast | None = None
    """The Plan's needs on this host."""
    deep: Mapping[str, Any] | None = None
    """The result of the all-reduce over all hosts; None if it was not requested."""

    @property
    def cpu(self) -> bool:
        """Return whether the ranks run on CPUs."""
        return self.machine.accelerator == "cpu"

    @property
    def first(self) -> bool:
        """Return whether this is rank 0's host."""
        return self.host == self.hosts[0]

    def get(self, path: str, default: Any = None) -> Any:
        """Return the Plan's value at a dotted path."""
        return self.plan.get(path, default) if self.plan else default


Evaluate = Callable[[Case], Iterator[Outcome]]


@dataclass(frozen=True, slots=True)
class Check:
    """One registered check. `once`: about the job or the machine that starts it, not about each host."""

    id: str
    title: str
    evaluate: Evaluate
    once: bool = False


CHECKS: dict[str, Check] = {}
"""Every check by its id, in the order of the report."""


def doctor_check(id: str, *, once: bool = False) -> Callable[[Evaluate], Evaluate]:
    """Register a check. The function's docstring is its title."""

    def register(evaluate: Evaluate) -> Evaluate:
        if id in CHECKS:
            raise ValueError(f"the id {id} is taken by {CHECKS[id].evaluate.__name__}")
        CHECKS[id] = Check(id, (evaluate.__doc__ or "").splitlines()[0], evaluate, once)
        return evaluate

    return register
