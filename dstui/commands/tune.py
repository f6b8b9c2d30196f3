"""`dstui tune PLAN`: measure the best candidates of the forecast by short jobs, and print the winning Plan as a patch."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.arguments import bounded
from dstui.base.files import check_unused, write_atomic
from dstui.base.output import refuse, remark, say, tell
from dstui.commands.plan_argument import plan_of
from dstui.documents.plan_files import read_pool
from dstui.plan import Plan
from dstui.plan.holes import describe_open_holes, find_holes
from dstui.render.launch import RenderError
from dstui.render.target import Target

if TYPE_CHECKING:
    from dstui.assess import Facts

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
steps = bounded(int, 3, 10_000)


def budget(text: str) -> float:
    """Parse 90, 90s, 10m or 1.5h to seconds."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text)
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not 1 <= seconds <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a time between a second and a week, such as 90s, 10m or 1.5h")
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a Plan, ds_config.json or accelerate YAML; `quickstart` is a shipped one")
    parser.add_argument("--budget", type=budget, default=600.0, metavar="TIME", help="for all jobs together: 90s, 10m, 1h (default: 10m)")
    parser.add_argument("--steps", type=steps, default=8, metavar="N", help="steps of each job; the first is not counted (default: 8)")
    parser.add_argument("--only", choices=["micro-batch"], help="find the largest micro-batch that fits, in five jobs at most")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the best Plan to a new file")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--writes-ok", action="store_true", help="start although the script writes outside of the Plan's arguments")
    parser.add_argument("--fresh", action="store_true", help="start from the beginning instead of resuming an interrupted tune")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a key")


def run(args: argparse.Namespace) -> int:
    """Print the measurements. Return 0 if a Plan was found, 1 if no candidate ran, 2 after an error, 128 + n after signal n."""
    from dstui.headless import find_machine, say_findings

    plan = plan_of(args.plan, args.set)
    if problem := _not_tuned(plan):
        return refuse(problem)
    if args.output is not None:
        check_unused(args.output)
    pool = read_pool(plan)
    machine = find_machine(None, plan)
    from dstui.assess import assess
    from dstui.surroundings import gather

    target, facts = gather(plan, machine, launches=True)
    findings = [finding for finding in assess(target, facts).findings if finding.severity == "error"]
    say_findings(plan, findings, False)
    if findings:
        return refuse("nothing was started: fix the errors above")
    if not (args.writes_ok or _may_write(plan, facts)):
        return 2
    if problem := _not_startable(target):
        say(problem)
        return 1
    return _tune(args, target, pool, facts)


def _tune(args: argparse.Namespace, target: Target, pool: Mapping[str, int] | None, facts: Facts) -> int:
    """Measure, print the results and write the best Plan. Raises FileProblem or PlanError."""
    from dstui.facts.model_files import read_models
    from dstui.forecast.model import ModelFacts
    from dstui.headless import signals
    from dstui.tune import report
    from dstui.tune.candidates import Problem, regret_of
    from dstui.tune.record import key_of, new_folder, unfinished
    from dstui.tune.session import Options, Tune, chosen

    plan, models = target.plan, read_models(target.plan)
    assert isinstance(models, ModelFacts)
    problem = Problem(plan=plan, facts=models, machine=target.machine, pool=pool, only=args.only or "")
    key = key_of(plan, target.machine, args.steps, problem.only)
    folder = None if args.fresh else unfinished(key)
    say(f"resuming {folder.path}" if folder else "each candidate runs for a few steps as its own job; Ctrl-C stops")
    folder = folder or new_folder(plan, key)
    options = Options(budget=args.budget, steps=args.steps, only=problem.only, script_options=_script_options(facts))
    with signals() as asked:
        why = Tune(problem, target, facts, folder, options, asked, remark).run()
        number = asked()
    best, regret = chosen(problem, folder.results), regret_of(problem, folder.results)
    if args.json:
        tell(json.dumps(report.as_json(folder, best, why, regret), indent=1, default=str))
    else:
        tell("\n".join(report.lines(plan, folder, best, why, regret)))
    if number is not None:
        return 128 + number
    if best is None:
        return 1
    if args.output is not None:
        write_atomic(args.output, plan.patch(best.patch).text)
        say(f"written  {args.output}")
    return 0


def _not_tuned(plan: Plan) -> str:
    """Return why a Plan cannot be tuned; "" if it can."""
    if plan.job.command:
        return "tune takes a Plan whose ranks dstui starts itself: job.command starts its own"
    if plan.models:
        return "tune takes a Plan with one model: several models are not supported yet"
    if still_open := find_holes(plan):
        return describe_open_holes(still_open)
    if not plan.deepspeed:
        return (
            "the Plan's deepspeed section is empty, so there is nothing to vary: fill it with the configuration that the script reads "
            "(dstui import ds_config.json)"
        )
    return ""


def _not_startable(target: Target) -> str:
    """Return why none of the jobs can start; "" if nothing prevents it."""
    from dstui.jobs.control.start import LaunchError, check

    try:
        check(target.launch)
    except (LaunchError, RenderError) as error:
        return str(error)
    return ""


def _script_options(facts: Facts) -> tuple[str, ...]:
    from dstui.adopt.script import ScriptFacts

    return facts.script.options if isinstance(facts.script, ScriptFacts) else ()


def _may_write(plan: Plan, facts: Facts) -> bool:
    """Return whether the short jobs may run: they write none of the user's files, or the user agreed."""
    from dstui.tune.outputs import fixed_writes, redirected

    _, options = redirected(plan, Path("/"), _script_options(facts))
    found = fixed_writes(plan, options)
    if not found:
        return True
    for sentence in found[:5]:
        say(f"{plan.job.script or plan.job.module}, {sentence}")
    if not (os.isatty(0) and os.isatty(2)):
        refuse("nothing was started: the short jobs would write there too; --writes-ok allows it, or give the script an --output_dir")
        return False
    remark("The short jobs would write there too. Start them? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
