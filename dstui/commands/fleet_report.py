"""`dstui doctor --fleet HOSTS`: compare hosts, the deviating ones first, as text and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

from dstui.base.files import check_unused
from dstui.base.output import remark, tell
from dstui.doctor.deep import all_reduce_fleet
from dstui.doctor.fleet import SIZES, Change, Fleet, HostReport, Value, changes, compare, parse_fleet, read_baseline, save
from dstui.doctor.gather import gather_fleet
from dstui.jobs.queue.scheduler import nodes_of_partition
from dstui.machine.report import format_size

MARKS = {"ok": "✔", "warn": "▲", "fail": "✗"}


def run_fleet(args: argparse.Namespace) -> int:
    """Examine a fleet. Return 0 if all hosts are alike, healthy and unchanged, else 1. Raises FileProblem."""
    baseline = read_baseline(args.against) if args.against else None
    if args.save and not args.force:
        check_unused(args.save)
    job, cases = gather_fleet(_hosts(args.fleet))
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
