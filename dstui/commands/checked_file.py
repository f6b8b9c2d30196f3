"""Read and judge one file: a Plan, a bare ds_config.json or an accelerate YAML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from dstui.adopt.script import NoScript
from dstui.adopt.signs import kind_of
from dstui.assess import assess
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, read_text
from dstui.check import check_config
from dstui.documents.open import for_script_here
from dstui.documents.plan_files import apply_overrides, is_shipped, load_at
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, PlanError
from dstui.plan.finding import Finding, sort_findings
from dstui.plan.load import compose
from dstui.surroundings import gather

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of the command line that apply to every file."""

    machine: Machine | None = None
    world_size: int | None = None
    integration: str | None = None
    version: str | None = None
    sets: tuple[str, ...] = ()
    """PATH=VALUE settings for the Plans."""
    site: bool = True
    """True to apply the site file."""


@dataclass(frozen=True)
class CheckedFile:
    """A file with its findings. `error`: why it could not be read at all."""

    file: str
    kind: str = ""
    """plan, ds_config or accelerate"""
    text: str = ""
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The DeepSpeed configurations of the file by model, for the reference checker; "" if there is only one."""
    integration: str = ""
    assumed: bool = False
    """True if the integration was guessed from the values."""
    world_size: int | None = None
    plan: Plan | None = None
    findings: list[Finding] = field(default_factory=list)
    names: Path | None = None
    """A ds_config.json that the file names and that is judged too."""
    error: str | None = None
    line: int | None = None
    column: int | None = None


def check_files(paths: Iterable[Path], asked: Asked) -> list[CheckedFile]:
    """Read and judge files, each followed by the ds_config.json that it names."""
    checked: list[CheckedFile] = []
    for path in paths:
        checked.append(check_file(path, asked))
        named = checked[-1].names
        if named is not None:
            checked.append(check_file(named, replace(asked, integration="accelerate")))
    return checked


def check_file(path: Path, asked: Asked) -> CheckedFile:
    """Read and judge a file. Its content never causes an exception."""
    try:
        text = read_text(path)
        kind = kind_of(text, path.name)
        if kind == "script":
            raise FileProblem(
                f"{path}: a Python script: `dstui import {shlex.quote(str(path))} -o plan.yaml` makes a Plan of it, which can be checked"
            )
        if kind in ("ds_config", "accelerate"):
            return _configuration(path, kind, text, asked)
        return _plan(path, text, asked)
    except FileProblem as error:
        reported = re.match(r"(?:(\d+): )?(.*)", str(error).removeprefix(str(path)).lstrip(": "), re.DOTALL)
        line, sentence = reported.groups() if reported else (None, str(error))
        return CheckedFile(str(path), error=sentence, line=int(line) if line else None)


def _configuration(path: Path, kind: str, text: str, asked: Asked) -> CheckedFile:
    from dstui.adopt.dsconfig import ConfigError  # a Plan needs no reader of other formats

    try:
        if kind == "ds_config":
            return _dsconfig(path, text, asked)
        from dstui.commands.checked_accelerate import accelerate_findings, named_config

        found, findings = accelerate_findings(path, text)
        named = named_config(path, found.config)
        return CheckedFile(str(path), "accelerate", text, integration="accelerate", findings=findings, names=named)
    except ConfigError as error:
        return CheckedFile(str(path), text=text, error=error.message, line=error.line, column=error.column)


def _dsconfig(path: Path, text: str, asked: Asked) -> CheckedFile:
    from dstui.adopt.dsconfig import read_dsconfig

    with path.open("rb") as file:
        mark = file.read(3) == BOM
    found = read_dsconfig(text, asked.integration, mark=mark)
    findings = check_config(
        found.config,
        asked.machine,
        world_size=asked.world_size,
        integration=found.integration,
        deepspeed_version=asked.version,
        lines=found.line_of,
    )
    return CheckedFile(
        file=str(path),
        kind="ds_config",
        text=text,
        configs={"": found.config},
        integration=found.integration,
        assumed=asked.integration is None,
        world_size=asked.world_size,
        findings=sort_findings(found.findings + findings),
    )


def _plan(path: Path, text: str, asked: Asked) -> CheckedFile:
    try:
        compose(text, str(path))
    except PlanError as error:
        first = error.findings[0]
        return CheckedFile(str(path), "plan", text, error=first.message, line=first.line, column=first.column)
    try:
        plan = apply_overrides(load_at(path, text, site=asked.site), asked.sets)
        plan = for_script_here(plan) if is_shipped(str(path.parent)) else plan
        target, facts = gather(plan, asked.machine or Machine.unprobed())
    except PlanError as error:
        return CheckedFile(str(path), "plan", text, findings=error.findings)
    ranks = asked.world_size if asked.world_size is not None else target.world_size
    reader = asked.integration or plan.job.integration
    script = None if isinstance(facts.script, NoScript) else facts.script  # a checked Plan may have been written on another machine
    found = assess(target, replace(facts, script=script), world_size=ranks, integration=reader, deepspeed_version=asked.version)
    return CheckedFile(
        file=str(path),
        kind="plan",
        text=text,
        configs={} if script is not None and script.own_configuration and not plan.deepspeed else plan.configurations,
        integration=reader,
        world_size=ranks,
        plan=plan,
        findings=list(found.findings),
    )
