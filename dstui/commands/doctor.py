"""`dstui doctor [PLAN]`: check whether this machine and every host of a Plan are ready; `--fleet HOSTS`: find the host that differs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dstui.base.files import check_unused
from dstui.base.output import refuse, remark, tell
from dstui.commands.plan_argument import plan_of
from dstui.doctor.deep import all_reduce, all_reduce_fleet
from dstui.doctor.examine import Result, examine, is_ready
from dstui.doctor.fleet import SIZES, Change, Fleet, HostReport, Value, changes, compare, parse_fleet, read_baseline, save
from dstui.doctor.gather import gather_cases, gather_fleet
from dstui.documents.trusted_python import HELP, OPTION, is_own_interpreter, remember
from dstui.hosts.ssh import is_local_name
from dstui.jobs.queue.scheduler import nodes_of_partition
from dstui.machine.report import format_size

MARKS = {"ok": "✔", "warn": "▲", "fail": "✖", "skipped": "·"}


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
    if args.fleet is not None and args.plan:
        return refuse("--fleet cannot be combined with a Plan: it compares hosts, whatever will run there")
    if (args.save or args.against) and args.fleet is None:
        return refuse("--save and --against need --fleet HOSTS")
    if args.fleet is not None:
        return run_fleet(args)
    plan = plan_of(args.plan) if args.plan else None
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


def run_fleet(args: argparse.Namespace) -> int:
    """Examine a fleet. Return 0 if all hosts are alike, healthy and unchanged, else 1. Raises FileProblem."""
    baseline = read_baseline(args.against) if args.against else None
    if args.save and not args.force:
        check_unused(args.save)
    hosts = _hosts(args.fleet)
    if list(hosts) == [args.fleet] and not is_local_name(args.fleet):
        remark(f"there is no file {args.fleet} here and no such partition: it is taken for the name of a host")
    job, cases = gather_fleet(hosts)
    cases = all_reduce_fleet(job, cases) if args.deep else cases
    fleet, deep = compare(cases), next((case.deep for case in cases if case.deep), None)
    drift = changes(fleet.reports, baseline) if baseline is not None else []
    ok = fleet.is_ready and not drift
    if args.json:
        tell(json.dumps({**_json(fleet, drift, ok), "all_reduce": deep}, indent=1))
    else:
        tell("\n".join(_lines(fleet)))
        for backend, ran in (("gloo", deep or {}), ("nccl", (deep or {}).get("nccl") or {})):
            if "ranks" in ran:
                tell(f"all-reduce over {backend}: {ran['ranks']} ranks in {ran['seconds']:.1f} s")
        if baseline is not None:
            tell("\n".join(_drift_lines(drift, str(args.against))))
    if args.save:
        save(fleet.reports, args.save, replace=args.force)
        left_out = ", ".join(report.host for report in fleet.reports if not report.facts)
        remark(f"saved to {args.save}" + (f", without {left_out}" if left_out else ""))
    return 0 if ok else 1


def _hosts(text: str) -> dict[str, int]:
    """Return the hosts of a hostfile, a SLURM partition or a list of nodes. Raises FileProblem."""
    return dict.fromkeys(nodes, 0) if (nodes := nodes_of_partition(text)) else parse_fleet(text)


def _json(fleet: Fleet, drift: Sequence[Change], ok: bool) -> dict[str, object]:
    hosts = [
        {
            "host": report.host,
            "verdict": report.verdict,
            "differs": {name: {"here": here, "others": others} for name, (here, others) in report.odd.items()},
            "checks": [result.as_json() for result in report.results],
            "facts": dict(report.facts),
        }
        for report in fleet.reports
    ]
    changed = [{"host": each.host, "fact": each.fact, "was": each.was, "now": each.now} for each in drift]
    shared = [{**result.as_json(), "host": None} for result in fleet.shared]
    return {"version": 1, "ok": ok, "hosts": hosts, "shared": shared, "changed": changed}


def _lines(fleet: Fleet) -> Iterator[str]:
    """Yield the problems of each host that differs, then the hosts that are alike, what all have in common, and the count."""
    reports = fleet.reports
    width = max((len(report.host) for report in reports), default=0)
    for report in (report for report in reports if report.verdict != "ok"):
        first, *rest = _said(report)
        yield f"{MARKS[report.verdict]} {report.host.ljust(width)}  {first}"
        yield from (f"{' ' * (width + 4)}{line}" for line in rest)
    alike = [report for report in reports if report.verdict == "ok"]
    if alike:
        yield f"{MARKS['ok']} alike: {', '.join(report.host for report in alike)}"
        yield f"  {'; '.join(f'{name} {_text(name, value)}' for name, value in alike[0].facts.items() if value not in (None, 'unknown'))}"
    for result in fleet.shared:
        yield f"{MARKS[result.verdict]} all: {result.id}: {result.observed}"
        yield f"  → {result.fix}"
    failed, differ = (sum(report.verdict == verdict for report in reports) for verdict in ("fail", "warn"))
    yield f"\n{len(reports)} host{'s' * (len(reports) != 1)}: {failed} failed, {differ} with differences, {len(alike)} alike"


def _said(report: HostReport) -> Iterator[str]:
    """Yield the differences from other hosts, then the failed checks, each with its fix below."""
    for name, (here, others) in report.odd.items():
        yield f"{name} {_text(name, here)}; most have {_text(name, others)}"
    for result in report.results:
        yield f"{result.id}: {result.observed}"
        if result.fix:
            yield f"→ {result.fix}"


def _drift_lines(drift: Sequence[Change], name: str) -> Iterator[str]:
    """Yield the changes since the baseline."""
    yield f"\n{'Nothing has' if not drift else 'What has'} changed since {name}" + (":" if drift else "")
    for each in drift:
        if each.fact is None:
            yield f"  {each.host}  {'is new' if each.was is None else 'is gone'}"
        else:
            yield f"  {each.host}  {each.fact}: {_text(each.fact, each.was)} → {_text(each.fact, each.now)}"


def _text(name: str, value: Value) -> str:
    if name in SIZES and not isinstance(value, str):
        return format_size(value)
    return "none" if value is None else str(value)
