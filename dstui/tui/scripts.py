"""What the training script itself adds to the findings: whether it is there, who reads its configuration, and by which argument.

The checks are pure and see only the Plan; a session may look into the script too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.files import FileProblem, read_text
from dstui.plan.finding import Finding, Fix

if TYPE_CHECKING:
    from dstui.adopt.script import ScriptFacts
    from dstui.plan import Plan

NOBODY_READS = "PL001"
"""The rule that says that no argument hands the configuration to the script; it has to guess the argument."""


def script_path(plan: Plan) -> Path | None:
    """The file of the script, or of a module where it stands under the working folder; None where there is nothing to look into."""
    from dstui.render.launch import place

    folder = Path(place(plan, plan.job.workdir))
    if plan.job.script:
        return folder / plan.job.script
    module = folder / (plan.job.module or "").replace(".", "/")
    return next((path for path in (module.with_suffix(".py"), module / "__main__.py") if plan.job.module and path.is_file()), None)


def looked_into(plan: Plan, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings with what a look into the script adds to them, or makes needless."""
    path = script_path(plan)
    if path is None:
        return tuple(findings)
    try:
        facts = _facts(path, path.stat().st_mtime_ns)
    except (OSError, FileProblem):
        missing = Finding("SCRIPT", "warning", "job.script", f"{path.name} is not in {path.parent}", "the ranks could not start it")
        return (*findings, replace(missing, line=plan.line_of("job.script")))
    return tuple(_with_facts(plan, findings, facts))


@lru_cache(maxsize=4)
def _facts(path: Path, _changed: int) -> ScriptFacts:
    from dstui.adopt.script import inspect_script

    return inspect_script(read_text(path))


def _with_facts(plan: Plan, findings: Iterable[Finding], facts: ScriptFacts) -> Iterator[Finding]:
    for finding in findings:
        if finding.code != NOBODY_READS or facts.integration is None:
            yield finding
        elif facts.suggested_args:
            yield replace(finding, fix=_hand_over(plan, facts))
        # else the script finds the configuration by itself, and nothing is missing
    if facts.integration is not None and facts.integration != plan.job.integration:
        operation = {"op": "replace" if plan.get("job.integration") else "add", "path": "/job/integration", "value": facts.integration}
        message = f"the script is read as {facts.integration} ({facts.why}), the Plan says {plan.job.integration}"
        yield Finding("SCRIPT", "warning", "job.integration", message, fix=Fix(f"set integration to {facts.integration}", (operation,)))


def _hand_over(plan: Plan, facts: ScriptFacts) -> Fix:
    words = " ".join(facts.suggested_args)
    operation = {
        "op": "replace" if plan.get("job.args") is not None else "add",
        "path": "/job/args",
        "value": [*plan.job.args, *facts.suggested_args],
    }
    return Fix(f"add {words} ({facts.why})", (operation,))
