"""`dstui logs [RUN]`: what the ranks of a job printed, with their rank before each line; safe to show on any terminal."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable

from dstui.run.events import Exited, Line
from dstui.run.export import export
from dstui.run.follow import Follower
from dstui.run.index import find

POLL = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a job folder, a run's name or its beginning (default: the latest)"
    )
    parser.add_argument("--rank", type=int, action="append", metavar="N", help="only this rank (may be given again)")
    parser.add_argument("--follow", action="store_true", help="go on until the job has ended; Ctrl-C leaves it running")
    parser.add_argument("--grep", metavar="TEXT", help="only lines in which this regular expression is found")
    parser.add_argument("--metrics", choices=("csv", "json"), help="instead of the lines, the numbers in them: step, rank, name, value")


def run(args: argparse.Namespace) -> int:
    """Print them; 0, 1 where there is no such run, 2 where TEXT is no regular expression, or where the options do not go together."""
    if args.metrics and (args.follow or args.grep):
        print("dstui: --metrics is about all lines that are there now: it goes with --rank alone", file=sys.stderr)
        return 2
    try:
        folder = find(args.run)
        wanted = _filter(args.rank, args.grep)
    except LookupError as error:
        print(f"dstui: {error}", file=sys.stderr)
        return 1
    except re.error as error:
        print(f"dstui: --grep {args.grep}: {error}", file=sys.stderr)
        return 2
    if args.metrics:
        if not export(folder, args.metrics, sys.stdout, args.rank or ()):
            print(f"dstui: {folder.name}: its logs tell no numbers that are known (loss, lr, step, …)", file=sys.stderr)
        return 0
    follower = Follower(folder)
    while True:
        events = follower.poll()
        for event in events:
            if isinstance(event, Line) and wanted(event):
                print(event.text if args.rank and len(args.rank) == 1 else f"[{'-' if event.rank is None else event.rank}] {event.text}")
        if any(isinstance(event, Exited) for event in events) or not (events or args.follow):
            return 0
        if not events:
            sys.stdout.flush()
            time.sleep(POLL)


def _filter(ranks: list[int] | None, pattern: str | None) -> Callable[[Line], bool]:
    expression = re.compile(pattern) if pattern else None
    return lambda line: (not ranks or line.rank in ranks) and (expression is None or expression.search(line.text) is not None)
