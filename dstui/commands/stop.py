"""`dstui stop [RUN]`: ask a job to end, then force it, then verify that no process of it is left."""

from __future__ import annotations

import argparse
import shlex

from dstui.base.output import refuse, say, tell
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import RUN, find, known_runs
from dstui.jobs.store.status import has_ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=RUN)
    parser.add_argument("--take-over", action="store_true", help="if the host with the supervisor is gone: stop the job's hosts from here")


def run(args: argparse.Namespace) -> int:
    """Stop the job. Return 0; 1 if there is no such run or it is not the user's own; 2 if processes are left."""
    folder = find(args.run)
    ended = has_ended(folder)
    report = stop(folder, take_over=args.take_over)
    if report.refused:
        say(f"{folder.name} {report.refused}: it is read-only here, and nothing was done")
        return 1
    if report.left:
        return refuse("\n  ".join((f"{folder.name}: these processes could not be ended:", *report.left)))
    what = f"had ended before: {report.state}" if ended else "is stopped" if report.state == "stopped" else f"has ended: {report.state}"
    code = "unknown" if report.exit_code is None else report.exit_code
    tell(f"{folder.name} {what}, exit status {code}; no process is left")
    if not args.run and ended and (others := _unended_here(folder)):
        say(f"{', '.join(others)} still runs here: dstui stop {shlex.quote(others[-1])} stops it")
    return 0


def _unended_here(but: JobFolder) -> list[str]:
    """Return the other runs of the current folder that have not ended."""
    here = (run.folder for run in known_runs() if run.is_here and run.entry and run.folder != but)
    return [folder.name for folder in here if not has_ended(folder)]
