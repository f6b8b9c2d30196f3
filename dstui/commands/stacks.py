"""`dstui stacks [RUN]`: show where the ranks of a job are now; ranks at the same place are grouped."""

from __future__ import annotations

import argparse
import json

from dstui.base.arguments import a_rank, seconds
from dstui.base.output import say, tell
from dstui.jobs.store.index import RUN, find
from dstui.jobs.watch.hang_analysis import grouped
from dstui.jobs.watch.stacks import DEADLINE, report, stacks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=RUN)
    parser.add_argument("--rank", type=a_rank, action="append", metavar="N", help="only this rank, every thread of it (may be given again)")
    parser.add_argument("--json", action="store_true", help="every thread of every rank as one JSON object")
    parser.add_argument("--deadline", type=seconds, default=DEADLINE, metavar="SECONDS", help=f"for one rank (default: {DEADLINE:g})")


def run(args: argparse.Namespace) -> int:
    """Print the stacks. Return 0; 1 if there is no such run or no living rank; 2 if no stack could be read."""
    folder = find(args.run)
    found = stacks(folder, args.rank or (), deadline=args.deadline)
    if not found:
        say(f"{folder.name}: {'none of these ranks' if args.rank else 'no rank'} runs now")
        return 1
    known = any(stack.threads for stack in found)
    if args.json:
        tell(json.dumps({"version": 1, "stacks": [stack.as_json() for stack in found]}, indent=1))
    else:
        tell("\n".join((*(grouped(found) if known and not args.rank else ()), report(found, every_thread=bool(args.rank)))))
    return 0 if known else 2
