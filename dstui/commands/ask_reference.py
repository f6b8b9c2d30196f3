"""The installed DeepSpeed's verdict beside ours: `dstui check --oracle parse|init`."""

from __future__ import annotations

import sys
from typing import Any

from dstui.check.arrival import as_it_arrives, ranks_that_fit
from dstui.check.reference import ReferenceChecker, ReferenceFailure, ReferenceVerdict
from dstui.commands.checked_file import CheckedFile
from dstui.plan.finding import Finding, Fix, When, ranked
from dstui.trusted_python import OPTION, own, probe_python, remember

MOST_STARTED = 8
"""Ranks that `--oracle init` starts at most: each is a process with torch in it."""


def ask(checked: list[CheckedFile], how: str, *, trust: bool = False) -> dict[str, dict[str, Any]]:
    """Ask DeepSpeed about every configuration; what it refuses and no rule explains is added to the findings.

    `trust`: the user wants the interpreters that Plans name to be asked.
    """
    verdicts: dict[str, dict[str, Any]] = {}
    checkers: dict[str, ReferenceChecker] = {}
    try:
        for one in checked:
            if one.config is None:
                continue
            python = _whose(one, trust)
            config = as_it_arrives(one.config, one.integration)
            try:
                checker = checkers.get(python) or checkers.setdefault(
                    python, ReferenceChecker(python, how="initialize" if how == "init" else "parse")
                )
                ranks = one.world_size or ranks_that_fit(config)
                if how == "init" and ranks > MOST_STARTED:
                    raise ReferenceFailure(f"{ranks} ranks are more than are started here (give --world-size {MOST_STARTED} or less)")
                found = checker.validate(config, ranks)
            except ReferenceFailure as error:
                one.findings.append(Finding("ORACLE", "warning", "", f"DeepSpeed could not be asked: {error}"))
                continue
            verdicts[one.file] = {"ok": found.ok, "version": found.version, "kind": found.kind, "message": found.message}
            verdicts[one.file]["python"] = python
            one.findings[:] = ranked([*one.findings, _as_finding(one, found, how)])
    finally:
        for checker in checkers.values():
            checker.close()
    return verdicts


def _whose(one: CheckedFile, trust: bool) -> str:
    """The interpreter that is asked; where it is not the one that the Plan names, that is said."""
    plan = one.plan
    if plan is None or own(plan):
        return sys.executable
    if trust:
        remember(plan, True)
    python = probe_python(plan)
    if python == sys.executable:
        why = "a Plan may come from anywhere: the program that it names is run for a launch, and for looking only with your word"
        fix = Fix(f"{OPTION} lets it judge, and is remembered for this Plan and this interpreter")
        message = f"dstui's own Python judged, not {plan.job.python}, which the Plan names"
        one.findings.append(Finding("ORACLE", "info", "job.python", message, why, line=plan.line_of("job.python"), fix=fix))
    return python


def _as_finding(one: CheckedFile, found: ReferenceVerdict, how: str) -> Finding:
    """DeepSpeed's verdict as a line of its own: an error where it refuses and no rule said so."""
    name = f"DeepSpeed {found.version}".strip()
    moment: When = "initialize" if how == "init" else "parse"
    if found.ok:
        return Finding("ORACLE", "info", "", f"{name} {'initializes with' if how == 'init' else 'reads'} this configuration")
    words = found.message.splitlines()[0] if found.message else "without a message"
    explained = any(finding.severity == "error" and finding.when in ("parse", moment) for finding in one.findings)
    if explained:
        return Finding("ORACLE", "info", "", f"{name} refuses it too", f"{found.kind}: {words}")
    message = f"{name} refuses this configuration, and no rule here explains it"
    return Finding("ORACLE", "error", "", message, f"{found.kind}: {words}", moment)
