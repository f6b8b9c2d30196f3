"""`dstui bundle [RUN]`: a zip for a bug report, without secrets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from dstui.base.arguments import bounded
from dstui.base.files import is_folder, is_there
from dstui.base.output import remark, tell
from dstui.bundle.bundle import LAST_LINES, bundle
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import RUN, find
from dstui.machine.probe import probe

MAX_LINES = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=RUN)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the zip (default: NAME-bundle.zip in the current folder)")
    parser.add_argument(
        "--lines", type=bounded(int, 0, MAX_LINES), default=LAST_LINES, metavar="N", help=f"last lines of each log (default: {LAST_LINES})"
    )
    parser.add_argument("--force", action="store_true", help="replace the zip where it exists")


def run(args: argparse.Namespace) -> int:
    """Write the zip and print what to do with it. Return 0; 1 if there is no such run; 2 if it cannot be read or written."""
    folder = JobFolder(args.run) if args.run and is_folder(args.run) else find(args.run)
    more = {} if is_there(folder.path / "machine.json") else {"machine.json": json.dumps(probe().to_json(), indent=1) + "\n"}
    written = bundle(folder, args.output or Path.cwd(), more=more, lines=args.lines, replace=args.force)
    tell(str(written))
    remark("What looked like a secret is masked; still, read it before you pass it on.")
    return 0
