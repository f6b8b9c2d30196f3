"""`dstui attach [RUN]`: the Run screen on a job that was started before, from any terminal."""

from __future__ import annotations

import argparse
import os
import shlex

from dstui.output import refuse, say
from dstui.run.jobs.index import RUN, find


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=RUN)


def run(args: argparse.Namespace) -> int:
    """Show it; 1 where there is no such run, 2 where there is no terminal."""
    try:
        folder = find(args.run)
    except LookupError as error:
        say(str(error))
        return 1
    if not (os.isatty(0) and os.isatty(2)):
        return refuse(f"no terminal here: dstui logs {shlex.quote(folder.name)} --follow shows the same lines")
    from dstui.tui import attach_tui

    return attach_tui(folder)
