"""Before a launch to several hosts, run in parallel those of the doctor's checks that need no import, and report only problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dstui.doctor.case import Case
from dstui.doctor.examine import Result, examine
from dstui.doctor.gather import gather_cases
from dstui.render.target import Target

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
