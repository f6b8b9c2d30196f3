"""The files around a Plan: script, model, hostfile and the files that would be written.

Each look-up is identified by the paths that it depends on, and its result is cached under them. A thread does the work, since a disk may be
a network mount that does not answer; the app continues with what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dstui.assess import Facts
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, read_text
from dstui.documents.open import allocation_of
from dstui.documents.plan_files import env_files_in, pool_in
from dstui.jobs.store.op_locks import folder_of, stale_locks
from dstui.plan import Plan
from dstui.plan.env_file import EnvFiles
from dstui.plan.hostfile import HostfileProblem
from dstui.plan.launchers import JOB_SCRIPT
from dstui.render.config_files import config_name
from dstui.tui.session.host_sources import SurroundingsOf
from dstui.tui.session.model_lookup import FactsOf, MeasuredOf, ModelConfigsOf

if TYPE_CHECKING:
    from dstui.adopt.script import NoScript, ScriptFacts
    from dstui.machine.slurm_offers import SlurmOffers
    from dstui.plan import Plan


@dataclass(frozen=True, slots=True)
class ScriptOf:
    """A look-up of the script, or of the module's file under the working folder."""

    folder: str
    script: str | None
    module: str | None

    @classmethod
    def of(cls, plan: Plan) -> ScriptOf:
        """Return the look-up for this Plan."""
        return cls(plan.place(plan.job.workdir), plan.job.script, plan.job.module)

    def resolve(self) -> ScriptFacts | NoScript | None:
        """Return the facts of the script; None if there is none to read."""
        from dstui.documents.training_script import script_facts

        return script_facts(self.folder, self.script, self.module)


class Lookup(Protocol):
    """One look-up. Equal look-ups have equal results as long as the files do not change."""

    def resolve(self) -> Any:
        """Return the result; None if nothing is known. May block on a slow disk; never raises."""


@dataclass(frozen=True, slots=True)
class PoolOf:
    """A look-up of hosts named elsewhere, in the hostfile or the SLURM allocation: host -> slots."""

    path: str
    allocated: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> PoolOf:
        """Return the look-up for this Plan; with an empty path if it names no hostfile."""
        return cls(plan.place(plan.cluster.hostfile) if plan.cluster.hostfile else "", tuple((allocation_of(plan) or {}).items()))

    def resolve(self) -> dict[str, int] | HostfileProblem | None:
        """Return the hosts, or what is wrong with the hostfile; None if there is neither."""
        return pool_in(Path(self.path)) if self.path else dict(self.allocated) or None


@dataclass(frozen=True, slots=True)
class EnvFilesOf:
    """A look-up of the .deepspeed_env files that DeepSpeed's launcher would read for a Plan."""

    workdir: str
    name: str | None

    @classmethod
    def of(cls, plan: Plan) -> EnvFilesOf:
        """Return the look-up for this Plan."""
        return cls(plan.place(plan.job.workdir), plan.cluster.env_file)

    def resolve(self) -> EnvFiles:
        """Return their contents."""
        return env_files_in(self.workdir, self.name)


BESIDE = ("accelerate.yaml", "hostfile", ".deepspeed_env", "bind.sh", JOB_SCRIPT)
"""Files that are written beside the configurations."""


@dataclass(frozen=True, slots=True)
class WrittenIn:
    """A look-up of the files that `write files` would write to the Plan's folder."""

    folder: str
    models: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> WrittenIn:
        """Return the look-up for this Plan's folder."""
        return cls(plan.base, tuple(plan.models))

    def resolve(self) -> dict[str, str]:
        """Return name -> text of the files that exist; "" for one that cannot be read."""
        names = [config_name(model) for model in ("", *self.models)] + list(BESIDE)
        return {name: _text(Path(self.folder) / name) for name in names if Path(self.folder, name).exists()}


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except FileProblem:
        return ""


@dataclass(frozen=True, slots=True)
class StaleLocksIn:
    """A look-up of locks that killed builds have left in the folder of built ops."""

    folder: str

    @classmethod
    def of(cls, plan: Plan) -> StaleLocksIn:
        """Return the look-up for this Plan's folder."""
        return cls(str(folder_of(plan)))

    def resolve(self) -> tuple[Path, ...]:
        """Return the locks that no process here holds."""
        return stale_locks(Path(self.folder))


@dataclass(frozen=True, slots=True)
class SlurmOffersOf:
    """A look-up of what the SLURM cluster here offers, for a Plan that is to be queued; for others it asks nothing."""

    queued: bool

    @classmethod
    def of(cls, plan: Plan) -> SlurmOffersOf:
        """Return the look-up for this Plan."""
        return cls(plan.cluster.submits)

    def resolve(self) -> SlurmOffers | None:
        """Return the offers, at most five minutes old."""
        if not self.queued:
            return None
        from dstui.jobs.queue.scheduler import slurm_offers

        return slurm_offers()


def facts_in(plan: Plan, lookups: Mapping[Lookup, Any]) -> Facts:
    """Return the results of the last look-ups as `Facts` for `dstui.assess`."""
    asked = FactsOf.of(plan)
    found = lookups.get(asked) if asked.on_disk or not lookups else asked.resolve()  # a mere number of parameters needs no file
    script = lookups.get(ScriptOf.of(plan))
    if found is not None:
        found = {n: one.for_script(script) for n, one in found.items()} if isinstance(found, Mapping) else found.for_script(script)
    return Facts(
        script=script,
        configs=lookups.get(ModelConfigsOf.of(plan), {}),
        models=found,
        pool=lookups.get(PoolOf.of(plan)),
        measured=lookups.get(MeasuredOf.of(plan)) if lookups else None,
        locks=lookups.get(StaleLocksIn.of(plan), ()) if lookups else (),
        slurm=lookups.get(SlurmOffersOf.of(plan)),
    )


LOOKUPS = (ScriptOf, ModelConfigsOf, FactsOf, MeasuredOf, PoolOf, EnvFilesOf, WrittenIn, StaleLocksIn, SurroundingsOf, SlurmOffersOf)


def resolve_all(plan: Plan) -> Mapping[Lookup, Any]:
    """Resolve every look-up of a Plan."""
    lookups: list[Lookup] = [kind.of(plan) for kind in LOOKUPS]
    return {each: each.resolve() for each in lookups}
