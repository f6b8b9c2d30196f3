"""A look into the training script that a Plan names: whether it is there, who reads its configuration, and by which argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.adopt.script import NoScript, ScriptFacts
    from dstui.plan import Plan


@dataclass(frozen=True, slots=True)
class ScriptOf:
    """A look into the script, or into the module where it stands under the working folder."""

    folder: str
    script: str | None
    module: str | None

    @classmethod
    def of(cls, plan: Plan) -> ScriptOf:
        """The one of this Plan."""
        return cls(plan.place(plan.job.workdir), plan.job.script, plan.job.module)

    def resolve(self) -> ScriptFacts | NoScript | None:
        """What the script says of itself; None where there is nothing to look into."""
        from dstui.documents.open import script_facts

        return script_facts(self.folder, self.script, self.module)
