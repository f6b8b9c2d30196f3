"""`dstui doctor [PLAN]`: check whether this machine and every host of a Plan are ready; `--fleet HOSTS`: find the host that differs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dstui.base.files import FileProblem
from dstui.base.output import refuse, tell
from dstui.commands.fleet_report import run_fleet
from dstui.commands.plan_argument import plan_of
from dstui.doctor.deep import all_reduce
from dstui.doctor.examine import Result, examine, is_ready
from dstui.doctor.gather import gather_cases
from dstui.documents.trusted_python import HELP, OPTION, is_own_interpreter, remember
from dstui.plan import PlanError

MARKS = {"ok": "✔", "warn": "▲", "fail": "✗", "skipped": "·"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="check every host of this Plan, and what the Plan needs")
    parser.add_argument("--json", action="store_true", help="the results as JSON")
    parser.add_argument(OPTION, action="store_true", help=HELP)
    parser.add_argument("--deep", action="store_true", help="also run an all-reduce across all hosts, over gloo and (GPUs) nccl")
    fleet = parser.add_argument_group("compare many hosts, without a Plan")
    fleet.add_argument(
        "--fleet", metavar="HOSTS", help="a hostfile, a SLURM partition or a list such as node[01-16]: hosts that differ come first"
    )
    fleet.add_argument("--save", metavar="FILE", type=Path, help="save their facts as a baseline")
    fleet.add_argument("--against", metavar="FILE", type=Path, help="print what changed since that baseline")
    fleet.add_argument("--force", action="store_true", help="let --save replace a file with other content")


def run(args: argparse.Namespace) -> int:
    """Run the checks. Return 0 if none fails, 1 if one does, 2 if the Plan is unreadable."""
    if args.fleet and args.plan:
        return refuse("--fleet cannot be combined with a Plan: it compares hosts, whatever will run there")
    if (args.save or args.against) and not args.fleet:
        return refuse("--save and --against need --fleet HOSTS")
    try:
        if args.fleet:
            return run_fleet(args)
        plan = plan_of(args.plan) if args.plan else None
    except (FileProblem, PlanError) as problem:
        return refuse(str(problem))
    if plan and args.trust_python and not is_own_interpreter(plan):
        remember(plan, True)
    job, found = gather_cases(plan)
    if args.deep:
        found = all_reduce(job, found)
    results = examine(found, job.problem)
    if args.json:
        tell(json.dumps({"version": 1, "ok": is_ready(results), "checks": [result.as_json() for result in results]}, indent=1))
    else:
        tell("\n".join(_report(results, len(found) > 1)))
    return 0 if is_ready(results) else 1


def _report(results: Sequence[Result], several: bool) -> Iterator[str]:
    """Yield the report with the failures last, where they stay on the screen. Skipped checks are only counted."""
    reported = [result for result in results if result.verdict != "skipped"]
    width = max((len(result.id) for result in reported), default=0)
    for verdict in ("ok", "warn", "fail"):
        for result in (result for result in reported if result.verdict == verdict):
            host = f"{result.host}: " if several else ""
            yield f"{MARKS[verdict]} {result.id.ljust(width)}  {host}{result.observed}"
            if result.fix and verdict != "ok":
                yield f"  {' ' * width}  → {result.fix}"
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in MARKS}
    words = {"ok": "ok", "warn": "to look at", "fail": "failed", "skipped": "not applicable"}
    yield ""
    yield ", ".join(f"{counts[verdict]} {words[verdict]}" for verdict in MARKS if counts[verdict])
