"""`dstui diagnose PATH…`: why a run failed, from its logs, whoever started it."""

from __future__ import annotations

import argparse
import json

from dstui.base.files import FileProblem
from dstui.base.output import refuse, tell
from dstui.diagnosis import diagnose, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="logs (also gzip), folders and zips of logs, a job folder or its bundle, or - for standard input",
    )
    parser.add_argument("--json", action="store_true", help="the diagnosis as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print it; 0 where there is an answer, 1 where the logs do not say, 2 where one cannot be read."""
    try:
        diagnosis = diagnose(args.paths)
    except FileProblem as error:
        return refuse(str(error))
    tell(json.dumps(diagnosis.as_json(), indent=1, ensure_ascii=False) if args.json else report(diagnosis))
    return 0 if diagnosis.found else 1
