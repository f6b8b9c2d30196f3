"""`dstui stop [RUN]`: ask a job to end, then make it, then prove that nothing of it is left."""

from __future__ import annotations

import argparse

from dstui.output import refuse, say, tell
from dstui.run.folder import FINAL, JobFolder
from dstui.run.index import find, runs
from dstui.run.status import refresh
from dstui.run.stop import stop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a job folder, a run's name or its beginning (default: the latest)"
    )


def run(args: argparse.Namespace) -> int:
    """Stop it; 0, 1 where there is no such run, 2 where processes are left."""
    try:
        folder = find(args.run) if args.run else _latest()
    except LookupError as error:
        say(str(error))
        return 1
    ended = refresh(folder).get("state") in FINAL
    report = stop(folder)
    if report.left:
        return refuse("\n  ".join((f"{folder.name}: these could not be ended:", *report.left)))
    what = "had ended before" if ended else "is stopped"
    tell(f"{folder.name} {what}: {report.state}, exit status {report.exit_code}; no process is left")
    return 0


def _latest() -> JobFolder:
    """The latest job that has not ended; where all have, the latest, whose processes are looked for all the same."""
    living = [status for status in runs() if status.get("state") not in FINAL]
    return JobFolder(living[-1]["folder"]) if living else find()
