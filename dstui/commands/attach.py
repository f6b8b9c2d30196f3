"""`dstui attach [RUN]`: open the Run screen on a job that was started before, from any terminal."""

from __future__ import annotations

import argparse
import shlex

from dstui.base.output import no_screen, refuse, wants_lines
from dstui.jobs.store.index import RUN, find


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=RUN)
    parser.add_argument("--plain", action="store_true", help="a line of state every 30 seconds instead of the screen")
    parser.add_argument("--until-end", action="store_true", help="leave when the job has ended")


def run(args: argparse.Namespace) -> int:
    """Open the screen. Return 1 if there is no such run, 2 if the terminal cannot draw it."""
    folder = find(args.run)
    if args.plain or wants_lines():
        from dstui.plain import attach_plain

        return attach_plain(folder)
    if why := no_screen():
        return refuse(f"{why}: dstui logs {shlex.quote(folder.name)} --follow shows the same lines")
    from dstui.tui import attach_tui

    return attach_tui(folder, until_end=args.until_end)
