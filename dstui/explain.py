"""Explain what a launch of a Plan does, without launching: every value with its origin, and who receives what, in order of time.

It reports the results of `render`, `check` and the layers, and adds no rule of its own. `explain_run` explains a run from the reports of
its engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dstui.adopt.script import NoScript, ScriptFacts
from dstui.adopt.script_options import options_of
from dstui.base.dataclass import dataclass
from dstui.base.text import counted
from dstui.check import check_plan
from dstui.check.auto_values import AUTO, FILLED, fill_auto, hidden_size_of, value_of
from dstui.check.context import flatten
from dstui.check.rules.batch import known_batch
from dstui.jobs.engine.resolved import Resolved, lines, read_resolved
from dstui.jobs.store.folder import JobFolder
from dstui.plan import Plan, load
from dstui.plan.catalogue import lookup
from dstui.plan.finding import Finding
from dstui.plan.layers import Origin
from dstui.plan.locks import origin_of
from dstui.render.artifacts import artifacts
from dstui.render.config_files import config_name
from dstui.render.launch import NO_LOCAL_RANK, RenderError
from dstui.render.quoting import as_in_plan
from dstui.render.spec import LaunchSpec
from dstui.render.target import Target

READERS = {
    "deepspeed": "deepspeed.initialize",
    "trainer": "transformers' TrainingArguments and Trainer",
    "accelerate": "accelerate's Accelerator() and prepare()",
}
FROM_TORCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that every rank gets from its launcher."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the resolved Plan."""

    path: str
    value: Any
    origin: Origin
    filled: Any = None
    """The value that replaces an "auto", if it is known before the script runs."""
    filled_by: str = ""
    """The program that replaces an "auto", and the value that it takes."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui explain --json` documents."""
        found = {"path": self.path, "value": self.value, "layer": self.origin.layer, "file": self.origin.source or None}
        return {**found, "line": self.origin.line, "filled": self.filled, "filled_by": self.filled_by or None}


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch arithmetic: what DeepSpeed makes of the three numbers. None if not known before the run."""

    train: int | None
    micro: int | None
    steps: int | None
    ranks: int | None
    """The number of ranks that see different samples."""

    def __str__(self) -> str:
        """Format the arithmetic for the user."""
        unknown = "?"
        return (
            f"{self.train or unknown} sample{'s' * (self.train != 1)} per step = {self.micro or unknown} per rank × "
            f"{self.steps or unknown} accumulation × {self.ranks or unknown} data-parallel rank{'s' * (self.ranks != 1)}"
        )


@dataclass(frozen=True)
class Explanation:
    """All that is known before a launch. `error`: why there is no command, if so."""

    values: tuple[Value, ...]
    configs: Mapping[str, Mapping[str, Any]]
    """Model -> configuration of its engine, as far as known; "" for the Plan's own."""
    batch: Mapping[str, Batch]
    reader: str
    world_size: int | None
    files: tuple[tuple[str, str], ...] = ()
    spec: LaunchSpec | None = None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui explain --json` documents."""
        spec = self.spec
        ranks = spec and {
            "python": spec.python,
            "workdir": spec.workdir,
            "script": list(spec.script),
            "arguments": [as_in_plan(word) for word in spec.script_args],
            "environment": {name: as_in_plan(value) for name, value in spec.env.items()},
            "hosts": {host: list(slots) for host, slots in spec.slots.items()},
        }
        return {
            "version": 1,
            "values": [value.as_json() for value in self.values],
            "files": [{"name": name, "why": why} for name, why in self.files],
            "command": spec.command() if spec is not None else None,
            "world_size": self.world_size,
            "ranks": ranks,
            "reader": self.reader,
            "configurations": self.configs,
            "batch": {name: {"train": b.train, "micro": b.micro, "steps": b.steps, "ranks": b.ranks} for name, b in self.batch.items()},
            "error": self.error or None,
        }


def explain(
    target: Target, script: ScriptFacts | NoScript | None = None, models: Mapping[str, Mapping[str, Any] | None] | None = None
) -> Explanation:
    """Explain a Plan on a Machine. `models`: the config.json of each configuration's model."""
    plan, options = target.plan, options_of(target.plan.job.args)
    reader = plan.job.integration
    configs = {name: _filled(plan, config, options, (models or {}).get(name)) for name, config in plan.configurations.items()}
    batch = {name: _batch(plan, config, target.world_size) for name, config in configs.items() if config and plan.trains(name)}
    values = tuple(_values(plan, configs))
    who = READERS[reader] + (f" ({script.why})" if isinstance(script, ScriptFacts) and script.why else "")
    try:
        files = tuple((file.name, file.why) for file in artifacts(target))
        spec = None if plan.job.command else target.launch
    except RenderError as error:
        return Explanation(values, configs, batch, who, target.world_size, error=str(error))
    return Explanation(values, configs, batch, who, target.world_size, files, spec)


def _filled(plan: Plan, config: Mapping[str, Any], options: Mapping[str, str], model: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a configuration in which each "auto" with a known value is replaced."""
    reader = plan.job.integration
    filled = fill_auto(config, reader, plan.accelerate, options if reader == "trainer" else {})
    hidden = hidden_size_of(model, reader) if model is not None and reader != "deepspeed" else None
    zero = filled.get("zero_optimization")
    if hidden is None or not isinstance(zero, Mapping):
        return filled
    stage = zero.get("stage")
    known = {name: value_of(f"zero_optimization.{name}", hidden, stage if isinstance(stage, int) else 0) for name in zero}
    return {**filled, "zero_optimization": {name: known[name] if value == AUTO and known[name] else value for name, value in zero.items()}}


def _batch(plan: Plan, config: Mapping[str, Any], world_size: int | None) -> Batch:
    triple, ranks = known_batch(plan, config, world_size)
    return Batch(*triple, ranks)


def _values(plan: Plan, configs: Mapping[str, Mapping[str, Any]]) -> Iterator[Value]:
    """Yield every value that anything sets, in the order of the resolved Plan."""
    filled = {
        f"models.{name}.deepspeed.{path}" if name else f"deepspeed.{path}": value
        for name, config in configs.items()
        for path, value in flatten(config)
    }
    words = FILLED[plan.job.integration]
    for path, value in flatten({key: value for key, value in plan.data.items() if key not in ("version", "extends")}):
        if isinstance(value, Mapping) and value:
            continue
        origin = origin_of(plan, path) or Origin("default")
        if value != AUTO:
            yield Value(path, value, origin)
            continue
        became = filled.get(path)
        yield Value(path, value, origin, None if became == AUTO else became, words.get(path.partition("deepspeed.")[2], ""))


def explain_key(plan: Plan, found: Explanation, key: str) -> list[Value]:
    """Return the values at and below a key, those whose paths end with it, or its default. Raises AttributeError for an unknown key."""
    for path in (key, f"deepspeed.{key}"):
        values = [value for value in found.values if value.path == path or value.path.startswith(f"{path}.")]
        if values:
            return values
    if values := [value for value in found.values if value.path.endswith(f".{key}")]:
        return values
    known = lookup(key.removeprefix("deepspeed."))
    if known is not None:
        return [Value(f"deepspeed.{known.path}", known.default, Origin("DeepSpeed's default"))]
    section, _, name = key.partition(".")
    held: Any = getattr(plan, section, None) if section in ("job", "model", "cluster", "run") else None
    for part in name.split("."):
        held = getattr(held, part)
    return [Value(key, list(held) if isinstance(held, tuple) else held, Origin("dstui's default"))]


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Yield the lines of an explanation, in order of time."""
    yield "1  The Plan, with every layer (the last one wins: site, extends, settings, Plan, --set):"
    yield from map(value_line, found.values)
    if found.error:
        yield f"\nNo command can be made of it: {found.error}"
        return
    yield "\n2  A launch writes, into its job folder:"
    yield from (f"   {name:<20} {why}" for name, why in found.files)
    if found.spec is not None:
        yield "\n3  It starts:"
        yield from (f"   {line}" for line in found.spec.command().splitlines())
        yield from _rank_lines(found, found.spec)
    yield f"\n5  The configuration is read by {found.reader}"
    for name, config in found.configs.items():
        left = [path for path, value in flatten(config) if value == AUTO]
        if left:
            yield f'   still "auto" in {config_name(name)} until the script runs: {", ".join(left)}'
        if name in found.batch:
            yield f"   {f'{name}: ' if name else ''}{found.batch[name]}"


def _rank_lines(found: Explanation, spec: LaunchSpec) -> Iterator[str]:
    hosts = ", ".join(f"{host}: {len(slots)}" for host, slots in spec.slots.items())
    ranks = counted(found.world_size, "rank") if found.world_size else "An unknown number of ranks"
    yield f"\n4  {ranks}{f' ({hosts})' if hosts else ''}, each in {spec.workdir}, with"
    local_rank = spec.launcher == "local" and NO_LOCAL_RANK not in spec.launcher_options
    words = [*(["--local_rank=N"] if local_rank else []), *spec.script_args]
    yield f"   arguments: {as_in_plan(' '.join(words)) or 'none'}"
    yield f"   {', '.join(FROM_TORCH)} of its own, and"
    yield from (f"   {name}={as_in_plan(value)}" for name, value in spec.env.items())


def value_line(value: Value) -> str:
    """Format a value with its origin."""
    became = f" -> {value.filled}" if value.filled is not None else ""
    by = f" (filled by {value.filled_by})" if value.filled_by else ""
    written = getattr(value.value, "spelling", value.value)
    shown = {True: "true", False: "false"}.get(written, written) if isinstance(written, bool) else "null" if written is None else written
    return f"   {value.path} = {shown}{became}{by}   [{value.origin}]"


@dataclass(frozen=True, slots=True)
class EngineExplained:
    """An engine of a run, and the findings about the configuration that it used."""

    resolved: Resolved
    findings: tuple[Finding, ...]
    """Errors and warnings that the Plan's own configuration does not have."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui explain --run --json` documents."""
        return {**self.resolved.as_json(), "findings": [finding.as_json() for finding in self.findings]}

    def lines(self) -> Iterator[str]:
        """Yield the explanation of this engine as lines for the user."""
        yield from lines(self.resolved)
        yield from (
            f"{finding.severity} {finding.code} {finding.path}: {finding.message}{finding.instruction}" for finding in self.findings
        )


def explain_run(folder: JobFolder) -> list[EngineExplained]:
    """Explain the configurations that the engines of a run used. Empty if no rank reported an engine."""
    status = folder.read_status()
    ranks = len(status.ranks) if status and status.ranks else None
    explained = []
    for resolved in read_resolved(folder):
        version = resolved.made.versions.get("deepspeed")
        known = {_key(finding) for finding in _findings(resolved.planned, ranks, version)}
        found = _findings(resolved.made.config or {}, ranks, version) if resolved.different else []
        explained.append(EngineExplained(resolved, tuple(finding for finding in found if _key(finding) not in known)))
    return explained


def run_lines(engines: Sequence[EngineExplained], name: str) -> Iterator[str]:
    """Yield the engines of a run as lines for the user, or one sentence if no rank reported one. `name`: the name of the run."""
    for number, engine in enumerate(engines):
        yield from [""] if number else []
        yield from engine.lines()
    if not engines:
        yield f"no rank of {name} has reported an engine: deepspeed.initialize was not reached, or the run was not observed"


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.path


def _findings(config: Mapping[str, Any], ranks: int | None, version: str | None) -> list[Finding]:
    """Return the errors and warnings about a configuration without its Plan."""
    plan = load(json.dumps({"version": 1, "deepspeed": config}), "the run's configuration")
    return [finding for finding in check_plan(Target(plan), world_size=ranks, deepspeed_version=version) if finding.severity != "info"]
