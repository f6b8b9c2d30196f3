"""The look into the config.json of a Plan's models: the number that an "auto" becomes, and whether it is a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dstui.plan import Plan


@dataclass(frozen=True, slots=True)
class ModelConfigsOf:
    """A look into the config.json of the model of each configuration."""

    base: str
    sources: tuple[tuple[str, str | None], ...]
    """Name of the configuration, and the model's source."""

    @classmethod
    def of(cls, plan: Plan) -> ModelConfigsOf:
        """The one of this Plan."""
        models = {name: plan.focused_on(name).model for name in plan.configurations}
        return cls(plan.base, tuple((name, model.source if model else None) for name, model in models.items()))

    def resolve(self) -> dict[str, Mapping[str, Any] | None]:
        """What stands in each; None for a model that is not on this machine."""
        from dstui.facts.model_files import model_config

        return {name: model_config(source, self.base) for name, source in self.sources}
