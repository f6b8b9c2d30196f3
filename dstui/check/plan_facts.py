"""The facts about files and the cluster around a Plan that its rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dstui.base.dataclass import dataclass

if TYPE_CHECKING:
    from dstui.adopt.script import NoScript, ScriptFacts
    from dstui.machine.slurm_offers import SlurmOffers
    from dstui.plan.hostfile import HostfileProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """The facts that `check_plan` judges. Those that were not gathered are not judged."""

    script: ScriptFacts | NoScript | None = None
    """The result of analysing the training script."""
    configs: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """The config.json of each configuration's model."""
    pool: Mapping[str, int] | HostfileProblem | None = None
    """The content of the hostfile, or why it is unknown."""
    slurm: SlurmOffers | None = None
    """Offers of the SLURM cluster here, for a job that is to be queued."""
