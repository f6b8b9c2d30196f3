"""What lies on disk around a Plan: script, model, hostfile and the files that would be written.

Each look is named by the paths that it depends on; what it saw is remembered under that name. A thread looks, since a disk may be a network
mount that does not answer; the app goes on with what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dstui.files import FileProblem, pool_in, read_text
from dstui.plan import Plan
from dstui.plan.hostfile import HostfileProblem
from dstui.render.config_files import config_name
from dstui.run.jobs.op_locks import folder_of, lock_findings, stale_locks
from dstui.tui.session.auto_lookup import ModelConfigsOf
from dstui.tui.session.host_sources import SurroundingsOf
from dstui.tui.session.model_lookup import FactsOf, MeasuredOf
from dstui.tui.session.script_lookup import ScriptOf

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine
    from dstui.plan.finding import Finding


class Lookup(Protocol):
    """One look. Equal looks see the same, as long as nobody changes it."""

    def resolve(self) -> Any:
        """What is there; None where nothing can be said. Blocks as long as the disk does; never raises."""


@dataclass(frozen=True, slots=True)
class PoolOf:
    """The hostfile that a Plan names: host -> slots."""

    path: str

    @classmethod
    def of(cls, plan: Plan) -> PoolOf:
        """The one of this Plan; an empty path where it names none."""
        return cls(plan.place(plan.cluster.hostfile) if plan.cluster.hostfile else "")

    def resolve(self) -> dict[str, int] | HostfileProblem | None:
        """Its hosts, or why it gives none; None where the Plan names none."""
        return pool_in(Path(self.path)) if self.path else None


@dataclass(frozen=True, slots=True)
class WrittenIn:
    """The files that `write files` would write to the Plan's folder."""

    folder: str
    models: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> WrittenIn:
        """The folder of this Plan."""
        return cls(plan.base, tuple(plan.models))

    def resolve(self) -> dict[str, str]:
        """Name -> text of those that are there; "" for one that cannot be read."""
        names = [config_name(model) for model in ("", *self.models)] + ["accelerate.yaml", "hostfile", ".deepspeed_env", "bind.sh"]
        return {name: _text(Path(self.folder) / name) for name in names if Path(self.folder, name).exists()}


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except FileProblem:
        return ""


@dataclass(frozen=True, slots=True)
class StaleLocksIn:
    """The locks that killed builds have left where the ranks build ops."""

    folder: str

    @classmethod
    def of(cls, plan: Plan) -> StaleLocksIn:
        """The folder of this Plan."""
        return cls(str(folder_of(plan)))

    def resolve(self) -> tuple[Path, ...]:
        """Those that no process here holds."""
        return stale_locks(Path(self.folder))


def stale_lock_findings(plan: Plan, machine: Machine, lookups: Mapping[Lookup, Any]) -> list[Finding]:
    """What the last look for locks has found; nothing where the ranks run on a machine that was recorded."""
    locks = lookups.get(StaleLocksIn.of(plan), ()) if lookups and not machine.recorded else ()
    return list(lock_findings(locks))


LOOKUPS = (ScriptOf, ModelConfigsOf, FactsOf, MeasuredOf, PoolOf, WrittenIn, StaleLocksIn, SurroundingsOf)


def resolve_all(plan: Plan) -> Mapping[Lookup, Any]:
    """Everything around a Plan, by its looks."""
    lookups: list[Lookup] = [kind.of(plan) for kind in LOOKUPS]
    return {each: each.resolve() for each in lookups}
