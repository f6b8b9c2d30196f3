"""A case: one host, everything that is known of it, and the Plan; a check judges a case.

@doctor_check("shm")
def shared_memory(case):
    "Memory through which the ranks of a host talk."
    yield Outcome("ok", "64 GB in /dev/shm")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dstui.check.rules.machine.requirement import Requirement
from dstui.forecast.forecast import Forecast
from dstui.forecast.model import ModelFacts
from dstui.hosts.ssh import Failure
from dstui.machine.snapshot import Machine
from dstui.plan import Plan

Verdict = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found on a host."""

    verdict: Verdict
    observed: str
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One host as the doctor sees it."""

    host: str
    machine: Machine
    ready: Mapping[str, Any] = field(default_factory=dict)
    """What `ready.py` found there; empty where it was not run."""
    failure: Failure | None = None
    """Why the host could not be looked at, or not completely."""
    plan: Plan | None = None
    python: str = ""
    """The interpreter of the ranks."""
    asked: bool = True
    """Whether that one was asked about the host's software; else it was dstui's own, or any that is there."""
    isolated: bool = False
    """Whether it was run with -I, which leaves out the packages of PYTHONPATH and of the user's own site-packages."""
    slots: int = 0
    """Ranks on this host; 0 where no Plan tells."""
    requirement: Requirement = field(default_factory=Requirement)
    """What the Plan asks of a host's GPUs."""
    here: bool = True
    hosts: tuple[str, ...] = ("localhost",)
    """All hosts of the job, rank 0's first."""
    names_needed: tuple[str, ...] | None = None
    """The names that every host must be able to resolve; None where no launch tells: then all."""
    meeting: str = ""
    """Where the ranks meet: an address or a name; "" where no launch tells."""
    others: tuple[Case, ...] = ()
    """The other hosts, for comparison; without others of their own."""
    skew: float | None = None
    """Seconds by which the host's clock is ahead of this machine's, at least."""
    start: Machine = field(default_factory=Machine.unprobed)
    """The machine where dstui runs, from which the launcher would start."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment there."""
    facts: ModelFacts | Mapping[str, ModelFacts] | None = None
    """What is known of the Plan's model; None where it names none."""
    pool: Mapping[str, int] | None = None
    """The slots of the Plan's hostfile."""
    forecast: Forecast | None = None
    """What the Plan would need of this host."""
    deep: Mapping[str, Any] | None = None
    """What the all-reduce over all hosts gave; None where it was not asked for."""

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
"""Every check by its id, in the order in which they are told."""


def doctor_check(id: str, *, once: bool = False) -> Callable[[Evaluate], Evaluate]:
    """Register a check. The function's docstring is its title."""

    def register(evaluate: Evaluate) -> Evaluate:
        if id in CHECKS:
            raise ValueError(f"the id {id} is taken by {CHECKS[id].evaluate.__name__}")
        CHECKS[id] = Check(id, (evaluate.__doc__ or "").splitlines()[0], evaluate, once)
        return evaluate

    return register
