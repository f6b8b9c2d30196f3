"""Look-ups of the models that a Plan names: their config.json, and the facts for the forecast."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dstui.base.dataclass import dataclass
from dstui.base.files import typed_path

if TYPE_CHECKING:
    from dstui.facts.measured import Measured
    from dstui.forecast.model import ModelFacts
    from dstui.forecast.modelled import Facts
    from dstui.plan import Plan


class Named(NamedTuple):
    """A model as a Plan names it; `name` is empty if there is only one."""

    name: str
    source: str | None
    params: float | None


@dataclass(frozen=True, slots=True)
class FactsOf:
    """A look-up of the files of the models that a Plan names."""

    base: str
    models: tuple[Named, ...]

    @classmethod
    def of(cls, plan: Plan) -> FactsOf:
        """Return the look-up for this Plan; without models if it names none."""
        if not plan.models:
            alone = plan.model
            given = alone is not None and (alone.source is not None or alone.params is not None)
            return cls(plan.base, (Named("", alone.source, alone.params),) if alone is not None and given else ())
        models = {name: plan.focused_on(name).model for name in plan.models}
        return cls(plan.base, tuple(Named(name, one.source if one else None, one.params if one else None) for name, one in models.items()))

    @property
    def on_disk(self) -> bool:
        """Return whether it reads a file."""
        return any(one.source for one in self.models)

    def resolve(self) -> Facts | None:
        """Return the facts of the models; None if the Plan names none."""
        found = {one.name: _facts(one, self.base) for one in self.models}
        return found.get("", found) if found else None


@dataclass(frozen=True, slots=True)
class MeasuredOf:
    """A look-up of measurements: runs of a model, and rates of machines."""

    model: str

    @classmethod
    def of(cls, plan: Plan) -> MeasuredOf:
        """Return the look-up for this Plan."""
        from dstui.facts.measured import model_key

        return cls(model_key(plan))

    def resolve(self) -> Measured:
        """Return the measurements in the user's folders."""
        from dstui.facts.measured import read_measured

        return read_measured(self.model)


def _facts(one: Named, base: str) -> ModelFacts:
    from dstui.facts.model_files import read_model

    stamp = _stamp(Path(base) / typed_path(one.source)) if one.source else 0
    return read_model(one.source, one.params, base) if stamp is None else _remembered(one.source, one.params, base, stamp)


@lru_cache(maxsize=16)
def _remembered(source: str | None, params: float | None, base: str, _changed: int) -> ModelFacts:
    """Return the cached facts of a model: the same files give the same object, which keeps its derived values."""
    from dstui.facts.model_files import read_model

    return read_model(source, params, base)


def _stamp(path: Path) -> int | None:
    """Return the modification time of a file, or of a folder and its config.json; None if it does not exist."""
    try:
        changed = path.stat().st_mtime_ns
        return max(changed, (path / "config.json").stat().st_mtime_ns) if (path / "config.json").is_file() else changed
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ModelConfigsOf:
    """A look-up of the config.json of each configuration's model."""

    base: str
    sources: tuple[tuple[str, str | None], ...]
    """Name of the configuration, and the model's source."""

    @classmethod
    def of(cls, plan: Plan) -> ModelConfigsOf:
        """Return the look-up for this Plan."""
        models = {name: plan.focused_on(name).model for name in plan.configurations}
        return cls(plan.base, tuple((name, model.source if model else None) for name, model in models.items()))

    def resolve(self) -> dict[str, Mapping[str, Any] | None]:
        """Return the contents of each; None for a model that is not on this machine."""
        from dstui.facts.model_configs import model_config

        return {name: model_config(source, self.base) for name, source in self.sources}
