"""What the model itself adds to the findings: the number that an "auto" becomes, or that nobody will be able to fill it.

The checks are pure and know the formula only; a session may look into the model's config.json too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dstui.check.auto_values import hidden_size_of, value_of
from dstui.files import FileProblem, read_text
from dstui.limits import parse_json
from dstui.plan.finding import Finding

if TYPE_CHECKING:
    from dstui.plan import Plan

FOLLOWS = "DS306"
"""The rule that says that a key is filled from the model's hidden size."""


@dataclass(frozen=True, slots=True)
class ModelOf:
    """A look into the config.json of the model that a Plan names."""

    source: str

    @classmethod
    def of(cls, plan: Plan) -> ModelOf:
        """The one of this Plan; an empty source where it names none."""
        source = plan.model.source if plan.model is not None else None
        return cls(plan.place(source) if source else "")

    def resolve(self) -> HiddenSize | None:
        """What it says of its hidden size; None for a hub id, or no model's configuration."""
        if not self.source:
            return None
        try:
            path = Path(self.source)
            path = path / "config.json" if path.is_dir() else path
            return HiddenSize(path, _hidden_size(path, path.stat().st_mtime_ns))
        except (OSError, ValueError, FileProblem):
            return None


class HiddenSize(NamedTuple):
    """What a config.json says; None where it has no hidden size."""

    path: Path
    size: int | None


def filled_in(plan: Plan, findings: Iterable[Finding], lookups: HiddenSize | None) -> tuple[Finding, ...]:
    """The findings with the model's numbers in them, where its config.json is on this machine."""
    if lookups is None:
        return tuple(findings)
    stage = plan.get("deepspeed.zero_optimization.stage", 0)
    return tuple(_with_number(f, lookups.size, stage, lookups.path) if f.code == FOLLOWS else f for f in findings)


@lru_cache(maxsize=4)
def _hidden_size(path: Path, _changed: int) -> int | None:
    config = parse_json(read_text(path))  # which refuses what would block or never end
    return hidden_size_of(config) if isinstance(config, dict) else None


def _with_number(finding: Finding, hidden: int | None, stage: int, path: Path) -> Finding:
    if hidden is None:
        message = f'"auto" cannot be filled: {path} has neither hidden_size nor hidden_sizes'
        return replace(finding, severity="error", when="launch", message=message)
    value = value_of(finding.path.removeprefix("deepspeed."), hidden, stage)
    return finding if value is None else replace(finding, message=f"{finding.message} = {value:,}")
