"""The configurations and counts that the engines of a run resolved, and their differences from the Plan, as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.jobs.engine.compare import Difference, differences, is_another, sentence
from dstui.jobs.engine.lines import EngineMade, read_all
from dstui.jobs.store.folder import JobFolder, read_json

READ = 1 << 22
"""Bytes of a rank's lines that are read: engines are made before steps."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """One engine of a run, compared to the Plan."""

    made: EngineMade
    planned: Mapping[str, Any]
    """The configuration that the Plan rendered for it."""
    different: tuple[Difference, ...]
    another: bool
    """True if another configuration than the Plan's was read."""

    @property
    def sentence(self) -> str:
        """The message about its differences from the Plan; "" without any."""
        return sentence(self.made, list(self.different), another=self.another) if self.different else ""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui probe --json` documents."""
        changed = [{"key": d.key, "planned": d.planned, "found": None if d.missing else d.found} for d in self.different]
        return {**asdict(self.made), "differences": changed, "another": self.another}


def resolve(planned: Mapping[str, Mapping[str, Any]], made: EngineMade) -> Resolved:
    """Compare an engine with the configurations rendered from the Plan, by the names of their files."""
    name = model_name(planned, made)
    config = planned.get(f"ds_config_{name}.json" if name else "ds_config.json", {})
    different = differences(config, made)
    return Resolved(made, config, tuple(different), bool(different) and is_another(config, made, different, tuple(planned)))


def model_name(planned: Mapping[str, Mapping[str, Any]], made: EngineMade) -> str:
    """Return the Plan's name of an engine's model, by its file, else by its configuration; "" if the Plan has one model."""
    named = {file.removeprefix("ds_config_").removesuffix(".json"): config for file, config in planned.items() if file != "ds_config.json"}
    if not named or made.name in named:
        return made.name
    return min(named, key=lambda name: len(differences(named[name], made)))


def read_planned(folder: JobFolder) -> dict[str, Mapping[str, Any]]:
    """Return the configurations that were rendered for a run, by the names of their files."""
    return {path.name: read_json(path) for path in folder.ds_configs}


def read_resolved(folder: JobFolder) -> list[Resolved]:
    """Return the engines of the first rank that made any, in the last attempt; empty if none was made or observed."""
    status = folder.read_status()
    attempt, ranks = (status.attempt, sorted(status.ranks)) if status else (1, [0])
    planned = read_planned(folder)
    for rank in ranks:
        made = [report for report in read_all(folder.engine(rank, attempt), READ) if isinstance(report, EngineMade)]
        if made:
            return [resolve(planned, engine) for engine in made]
    return []


def lines(resolved: Resolved) -> list[str]:
    """Return one engine as text: who made it, its counts, and the configuration."""
    made = resolved.made
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    found = [f"made at {made.own or made.caller or 'an unknown line'} ({versions})"]
    if made.own and made.caller != made.own:
        found[0] = f"made at {made.own}, by {made.caller} ({versions})"
    if len(made.batch) == 3:
        ranks = f" × {made.groups['data']} data-parallel ranks" if made.groups.get("data") else ""
        found.append(f"batch {made.batch[0]} = {made.batch[1]} per rank × {made.batch[2]} accumulation{ranks}")
    optimizer = (made.optimizer or "none").rpartition(".")[2]
    if made.inner_optimizer and made.inner_optimizer != made.optimizer:
        optimizer += f" around {made.inner_optimizer.rpartition('.')[2]}"
    scheduler = (made.scheduler or "none").rpartition(".")[2]
    found.append(f"ZeRO stage {made.stage}, {made.precision}, optimizer {optimizer}, scheduler {scheduler}")
    if made.parameters is not None:
        trained = "all trained" if made.trained == made.parameters else f"{made.trained or 0:,} trained"
        found.append(f"{made.parameters:,} parameters, {trained}; on {made.device_name or made.device}")
    groups = [f"{name} {size}" for name, size in made.groups.items() if size and size > 1]
    found += [f"groups: {', '.join(groups)}"] if groups else []
    found.append("configuration in DeepSpeed:")
    found += [f"  {line}" for line in json.dumps(made.config, indent=2, default=str).splitlines()]
    found.append(f"other than the Plan: {resolved.sentence}" if resolved.different else "as in the Plan")
    return found
