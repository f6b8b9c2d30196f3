"""Run the checks on the cases. Returns a flat list of results, in the order of the checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dstui.doctor.case import CHECKS, Case, Check, Outcome, Verdict
from dstui.doctor.checks import ORDER


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check on one host."""

    id: str
    host: str
    verdict: Verdict
    observed: str
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui doctor --json` documents."""
        title = CHECKS[self.id].title if self.id in CHECKS else ""
        return {"id": self.id, "title": title, "host": self.host, "verdict": self.verdict, "seen": self.observed, "fix": self.fix}


def examine(cases: Sequence[Case], problem: str | None = None) -> list[Result]:
    """Run all checks on all cases. `problem`: why the Plan's hosts are unknown, which fails the check `hosts`."""
    found = [Result("hosts", "localhost", "fail", problem, "correct the section cluster of the Plan")] if problem else []
    for check in ORDER:
        found += [result for case in (cases[:1] if check.once else cases) for result in _results(check, case)]
    return found


def _results(check: Check, case: Case) -> list[Result]:
    # the job and this machine are judged even if the host cannot be
    if case.failure and not case.ready and check.id != "reach" and not check.once:
        return [Result(check.id, case.host, "skipped", "the host could not be examined")]
    try:
        judgements = list(check.evaluate(case))
    except (KeyError, TypeError, IndexError) as error:  # a host that sent an incomplete answer
        judgements = [Outcome("skipped", f"the host's answer is incomplete: {error}")]
    return [Result(check.id, case.host, judgement.verdict, judgement.observed, judgement.fix) for judgement in judgements]


def is_ready(results: Sequence[Result]) -> bool:
    """Return whether no check failed."""
    return all(result.verdict != "fail" for result in results)
