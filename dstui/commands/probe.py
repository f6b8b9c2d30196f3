"""`dstui probe PLAN`: start the ranks up to the end of deepspeed.initialize, and show what DeepSpeed made of the configuration."""

from __future__ import annotations

import argparse
import json

from dstui.assess import assess
from dstui.base.arguments import seconds
from dstui.base.output import refuse, say, tell
from dstui.commands.plan_argument import plan_of
from dstui.documents.plan_files import read_pool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a Plan, ds_config.json or accelerate YAML; `quickstart` is a shipped one")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a key")
    parser.add_argument("--deadline", type=seconds, default=600.0, metavar="SECONDS", help="seconds for all of it (default: 600)")


def run(args: argparse.Namespace) -> int:
    """Print the resolved values. Return 0; 1 if they differ from the Plan or were not reached; 2 after an error; 128 + n after signal n."""
    from dstui.headless import find_machine, say_findings, signals
    from dstui.jobs.control.probing import probe_plan
    from dstui.jobs.control.start import LaunchError
    from dstui.surroundings import gather

    plan = plan_of(args.plan, args.set)
    if plan.job.command:
        return refuse("probe takes a Plan whose ranks dstui starts itself: job.command starts its own")
    read_pool(plan)
    target, facts = gather(plan, find_machine(None, plan), launches=True)
    findings = [finding for finding in assess(target, facts).findings if finding.severity == "error"]
    say_findings(plan, findings, False)
    if findings:
        return refuse("nothing was started: fix the errors above")
    try:
        with signals() as asked:
            found = probe_plan(target, args.deadline, asked)
    except LaunchError as error:
        say(str(error))
        return 1
    if number := asked():
        say("the ranks are stopped; nothing was trained or saved")
        return 128 + number
    if args.json:
        tell(json.dumps(found.as_json(), indent=1))
    else:
        tell("\n".join(found.lines()))
    return 0 if found.ok else 1
