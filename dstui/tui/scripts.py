"""What the training script itself adds to the findings: whether it is there, who reads its configuration, and by which argument.

The checks are pure and see only the Plan; a session may look into the script too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class ScriptOf:
    """A look into the script, or into the module where it stands under the working folder."""

    folder: str
    script: str | None
    module: str | None

    @classmethod
    def of(cls, plan: Plan) -> ScriptOf:
        """The one of this Plan."""
        return cls(plan.place(plan.job.workdir), plan.job.script, plan.job.module)

    def look(self) -> ScriptFacts | Missing | None:
        """What the script says of itself; None where there is nothing to look into."""
        try:
            path = self._path()
            return _facts(path, path.stat().st_mtime_ns) if path is not None else None
        except (OSError, FileProblem):
            return Missing(Path(self.folder, self.script or ""))

    def _path(self) -> Path | None:
        if self.script:
            return Path(self.folder, self.script)
        module = Path(self.folder, (self.module or "").replace(".", "/"))
        return next((path for path in (module.with_suffix(".py"), module / "__main__.py") if self.module and path.is_file()), None)


@dataclass(frozen=True, slots=True)
class Missing:
    """No script can be read there."""

    path: Path


def looked_into(plan: Plan, findings: Iterable[Finding], seen: ScriptFacts | Missing | None) -> tuple[Finding, ...]:
    """The findings with what a look into the script adds to them, or makes needless."""
    if seen is None:
        return tuple(findings)
    if isinstance(seen, Missing):
        why = "the ranks could not start it"
        missing = Finding("SCRIPT", "warning", "job.script", f"{seen.path.name} is not in {seen.path.parent}", why)
        return (*findings, replace(missing, line=plan.line_of("job.script")))
    return tuple(_with_facts(plan, findings, seen))


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
