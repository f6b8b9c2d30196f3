"""Look-ups of the models that a Plan names: their config.json, and the facts that the forecast needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dstui.base.files import typed_path

if TYPE_CHECKING:
    from dstui.facts.measured import Measured
    from dstui.forecast.forecast import Facts
    from dstui.forecast.model import ModelFacts
    from dstui.plan import Plan


class Named(NamedTuple):
    """A model as a Plan names it; `name` is empty where there is one alone."""

    name: str
    source: str | None
    params: float | None


@dataclass(frozen=True, slots=True)
class FactsOf:
    """A look into the files of the models that a Plan names."""

    base: str
    models: tuple[Named, ...]

    @classmethod
    def of(cls, plan: Plan) -> FactsOf:
        """Return the one of this Plan; without models where it names none."""
        if not plan.models:
            alone = plan.model
            given = alone is not None and (alone.source is not None or alone.params is not None)
            return cls(plan.base, (Named("", alone.source, alone.params),) if alone is not None and given else ())
        models = {name: plan.focused_on(name).model for name in plan.models}
        return cls(plan.base, tuple(Named(name, one.source if one else None, one.params if one else None) for name, one in models.items()))

    @property
    def on_disk(self) -> bool:
        """Return whether a file has to be read for it."""
        return any(one.source for one in self.models)

    def resolve(self) -> Facts | None:
        """Return what the files say, or a bare number; None where the Plan names no model."""
        found = {one.name: _facts(one, self.base) for one in self.models}
        return found.get("", found) if found else None


@dataclass(frozen=True, slots=True)
class MeasuredOf:
    """A look-up of what was measured: runs of a model, and rates of machines."""

    model: str

    @classmethod
    def of(cls, plan: Plan) -> MeasuredOf:
        """Return the one of this Plan."""
        from dstui.facts.measured import model_key

        return cls(model_key(plan))

    def resolve(self) -> Measured:
        """Return what is kept in the user's folders."""
        from dstui.facts.measured import read_measured

        return read_measured(self.model)


def _facts(one: Named, base: str) -> ModelFacts:
    from dstui.facts.model_files import read_model

    stamp = _stamp(Path(base) / typed_path(one.source)) if one.source else 0
    return read_model(one.source, one.params, base) if stamp is None else _remembered(one.source, one.params, base, stamp)


@lru_cache(maxsize=16)
def _remembered(source: str | None, params: float | None, base: str, _changed: int) -> ModelFacts:
    """Return what was worked out for a model is kept in its facts, so the same files have the same facts."""
    from dstui.facts.model_files import read_model

    return read_model(source, params, base)


def _stamp(path: Path) -> int | None:
    """When a file, or a folder and the config.json in it, was changed; None for what is not there."""
    try:
        changed = path.stat().st_mtime_ns
        return max(changed, (path / "config.json").stat().st_mtime_ns) if (path / "config.json").is_file() else changed
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ModelConfigsOf:
    """A look into the config.json of the model of each configuration."""

    base: str
    sources: tuple[tuple[str, str | None], ...]
    """Name of the configuration, and the model's source."""

    @classmethod
    def of(cls, plan: Plan) -> ModelConfigsOf:
        """Return the one of this Plan."""
        models = {name: plan.focused_on(name).model for name in plan.configurations}
        return cls(plan.base, tuple((name, model.source if model else None) for name, model in models.items()))

    def resolve(self) -> dict[str, Mapping[str, Any] | None]:
        """Return what stands in each; None for a model that is not on this machine."""
        from dstui.facts.model_files import model_config

        return {name: model_config(source, self.base) for name, source in self.sources}
