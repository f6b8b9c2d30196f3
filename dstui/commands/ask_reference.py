"""Compare a configuration with the verdict of the installed DeepSpeed, which may run: `dstui check --reference parse|init`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from dstui.check.context import Context, without_auto
from dstui.check.reference import ReferenceChecker, ReferenceFailure, ReferenceVerdict
from dstui.check.rules.all_rules import RULES
from dstui.check.rules.batch import MICRO, TRAIN, evaluate_batch, written_batch
from dstui.commands.checked_file import CheckedFile
from dstui.documents.trusted_python import OPTION, is_own_interpreter, probe_python, remember
from dstui.plan.catalogue import release
from dstui.plan.finding import Finding, Fix, When, sort_findings

MAX_RANKS = 1024


def config_for_deepspeed(config: Mapping[str, Any], integration: str) -> dict[str, Any]:
    """Return the configuration as DeepSpeed gets it: without each "auto" that the reader fills in, and with a micro-batch."""
    if integration == "deepspeed":
        return dict(config)
    arriving = without_auto(config)
    if arriving.get(TRAIN) is None and arriving.get(MICRO) is None:
        arriving[MICRO] = 1
    return arriving


def fitting_world_size(config: Mapping[str, Any]) -> int:
    """Return a number of ranks that fits the batch keys if the world size is not given; else 1."""
    written = written_batch(Context(config, release()))
    return next((ranks for ranks in range(1, MAX_RANKS + 1) if not evaluate_batch(written, ranks).fails), 1)


MAX_STARTED = 8
"""The most ranks that `--reference init` starts: each is a process that imports torch."""


def ask(checked: list[CheckedFile], how: str, *, trust: bool = False) -> dict[str, dict[str, Any]]:
    """Ask DeepSpeed about every configuration. What it refuses and no rule explains is added to the findings.

    `trust`: the user agreed to run the interpreters that Plans name.
    """
    verdicts: dict[str, dict[str, Any]] = {}
    checkers: dict[str, ReferenceChecker] = {}
    try:
        for one in checked:
            python = _whose(one, trust) if one.configs else ""
            for name, written in one.configs.items():
                try:
                    checker = checkers.get(python) or checkers.setdefault(
                        python, ReferenceChecker(python, how="initialize" if how == "init" else "parse")
                    )
                    found = _verdict_on(checker, config_for_deepspeed(written, one.integration), one.world_size, how)
                except ReferenceFailure as error:
                    one.findings.append(Finding("ORACLE", "warning", "", f"DeepSpeed could not be run: {error}"))
                    continue
                verdict = {"ok": found.ok, "version": found.version, "kind": found.kind, "message": found.message, "python": python}
                if one.file not in verdicts or verdicts[one.file]["ok"]:  # of several models the first refused one
                    verdicts[one.file] = verdict
                one.findings[:] = sort_findings([*one.findings, _as_finding(one, name, found, how)])
    finally:
        for checker in checkers.values():
            checker.close()
    return verdicts


def _verdict_on(checker: ReferenceChecker, config: dict[str, Any], world_size: int | None, how: str) -> ReferenceVerdict:
    """Return DeepSpeed's verdict on one configuration. Raises ReferenceFailure."""
    ranks = world_size or fitting_world_size(config)
    if how == "init" and ranks > MAX_STARTED:
        raise ReferenceFailure(f"{ranks} ranks are more than this check starts (give --world-size {MAX_STARTED} or less)")
    return checker.validate(config, ranks)


def _whose(one: CheckedFile, trust: bool) -> str:
    """Return the interpreter to ask. Print a remark if it is not the one that the Plan names."""
    plan = one.plan
    if plan is None or is_own_interpreter(plan):
        return sys.executable
    if trust:
        remember(plan, True)
    python = probe_python(plan)
    if python == sys.executable:
        why = "a Plan may come from anywhere: the program that it names runs at a launch, and for a check only with your consent"
        fix = Fix(f"{OPTION} allows it, and is remembered for this interpreter")
        message = f"dstui's own Python was used, not {plan.job.python}, which the Plan names"
        one.findings.append(Finding("ORACLE", "info", "job.python", message, why, line=plan.line_of("job.python"), fix=fix))
    return python


def _contradicted(one: CheckedFile, path: str) -> Finding | None:
    """Return the first error that claims a refusal by DeepSpeed's parser which does not happen. Errors about other readers do not count."""
    ours = (f for f in one.findings if f.path.startswith(path) and f.severity == "error" and f.when == "parse")
    return next((f for f in ours if f.code in RULES and not RULES[f.code].readers), None)


def _as_finding(one: CheckedFile, model: str, found: ReferenceVerdict, how: str) -> Finding:
    """Return DeepSpeed's verdict as a finding: an error if it refuses and no rule reported that."""
    path, which = (f"models.{model}.deepspeed", f"the configuration of {model}") if model else ("", "this configuration")
    name = f"DeepSpeed {found.version}".strip()
    moment: When = "initialize" if how == "init" else "parse"
    if found.ok:
        if (wrong := _contradicted(one, path)) is not None:
            message = f"{name}'s own parser accepts {which}: please report {wrong.code}, which is wrong here"
            return Finding("ORACLE", "warning", wrong.path, message, "a defect of dstui, not of your file", line=wrong.line)
        return Finding("ORACLE", "info", path, f"{name} {'initializes with' if how == 'init' else 'reads'} {which}")
    words = found.message.splitlines()[0] if found.message else "without a message"
    if found.kind == "NoAnswer":
        return Finding("ORACLE", "warning", path, f"{name} gave no verdict on {which}", words)
    mine = [finding for finding in one.findings if finding.path.startswith(path) and finding.code != "ORACLE"]
    if any(finding.severity == "error" and finding.when in ("parse", moment) for finding in mine):
        return Finding("ORACLE", "info", path, f"{name} refuses it too", f"{found.kind}: {words}")
    message = f"{name} refuses {which}, and no rule here explains it"
    return Finding("ORACLE", "error", path, message, f"{found.kind}: {words}", moment)
