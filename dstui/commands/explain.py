"""`dstui explain PLAN [KEY]`: show what a launch would do and where each value comes from. Nothing is started.

`dstui explain --run [RUN]`: show what DeepSpeed made of the configuration in a run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from dstui.base.output import refuse, say, tell
from dstui.base.text import similar_words
from dstui.commands.plan_argument import plan_of
from dstui.jobs.store.index import RUN, find
from dstui.plan.catalogue import release


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a Plan, ds_config.json or accelerate YAML; `quickstart` is a shipped one")
    parser.add_argument("key", nargs="?", metavar="KEY", help="only this key and those below it: deepspeed.zero_optimization, cluster.env")
    parser.add_argument(
        "--run", nargs="?", const="", metavar="RUN", help=f"instead of a Plan: what DeepSpeed resolved in a run, and how it differs; {RUN}"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="on the machine recorded in FILE instead of this one")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a key")


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Return 0; 1 if there is no such run or it has no engine; 2 after an error."""
    if args.run is not None:
        return refuse("--run explains a run by itself: leave out the Plan") if args.plan else _run(args.run, as_json=args.json)
    if args.plan is None:
        return refuse("name a Plan, or give --run for a run")
    from dstui.explain import explain, explain_key, explanation_lines, value_line
    from dstui.headless import find_machine
    from dstui.surroundings import gather

    plan = plan_of(args.plan, args.set)
    target, facts = gather(plan, find_machine(str(args.machine) if args.machine else None, plan), launches=args.machine is None)
    found = explain(target, facts.script, facts.configs)
    if args.key is None:
        tell(json.dumps(found.as_json(), indent=1, default=str) if args.json else "\n".join(explanation_lines(found)))
        return 0
    try:
        values = explain_key(plan, found, args.key)
    except AttributeError:
        known = release().records
        ends = [path for path in known if path.endswith(f".{args.key}")]
        close = ends[:3] or similar_words(args.key.removeprefix("deepspeed."), known, 3, 0.7)
        hint = f"did you mean {' or '.join(close)}?" if close else "`dstui docs` lists them"
        return refuse(f"{args.key}: neither this Plan nor DeepSpeed has such a key: {hint}")
    if args.json:
        tell(json.dumps({"version": 1, "values": [value.as_json() for value in values]}, indent=1, default=str))
    else:
        tell("\n".join(value_line(value).strip() for value in values))
    return 0


def _run(name: str, *, as_json: bool) -> int:
    from dstui.explain import explain_run, run_lines

    folder = find(name)
    engines = explain_run(folder)
    if as_json:
        tell(json.dumps({"version": 1, "run": folder.name, "engines": [engine.as_json() for engine in engines]}, indent=1))
    else:
        (tell if engines else say)("\n".join(run_lines(engines, folder.name)))
    return 0 if engines else 1
