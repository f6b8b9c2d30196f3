"""Run the checks on the cases. Returns a flat list of results, in the order of the checks.

Before a launch to several hosts, only those that need no import run, in parallel, and only problems are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.doctor.case import CHECKS, Case, Check, Outcome, Verdict
from dstui.doctor.checks import ORDER
from dstui.doctor.gather import gather_cases
from dstui.render.target import Target


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


BEFORE = (
    *("hosts", "hostfile", "reach", "python", "versions", "clock", "launcher", "launcher-needs", "script", "folder", "names", "port"),
    *("interface", "leftovers"),
)
DEADLINE = 20.0
"""Seconds for a host to answer; all are asked at once."""


def run_preflight(target: Target, on_case: Callable[[Case], object] = lambda _case: None) -> list[Result]:
    """Return results that would make the launch fail or hang (fail) or deserve a look (warn), by host. Takes as long as the slowest host.

    `on_case` is called for each host as soon as it has answered, in the thread that asked it.
    """
    job, found = gather_cases(target.plan, imports=False, deadline=DEADLINE, machine=target.machine, on_case=on_case)
    return [result for result in examine(found, job.problem) if result.id in BEFORE and result.verdict in ("warn", "fail")]


def format_lines(results: Sequence[Result]) -> list[str]:
    """Format results as `h2: error: port: it is taken by …` with the fix below. Equal results of many hosts become one."""
    grouped: dict[tuple[bool, str, str], list[Result]] = {}
    for each in results:
        grouped.setdefault((each.verdict == "fail", each.id, each.observed), []).append(each)
    shown: list[str] = []
    for (failed, id, observed), those in sorted(grouped.items(), key=lambda item: item[0][0]):
        names = ", ".join(each.host for each in those[:4]) + (f" and {len(those) - 4} more" if len(those) > 4 else "")
        to_do = f"\n    do: {those[0].fix}" if those[0].fix else ""
        shown.append(f"{names}: {'error' if failed else 'warning'}: {id}: {observed}{to_do}")
    return shown
