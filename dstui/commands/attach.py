"""`dstui attach [RUN]`: the Run screen on a job that was started before, from any terminal."""

from __future__ import annotations

import argparse
import os
import sys

from dstui.run.index import find


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a job folder, a run's name or its beginning (default: the latest)"
    )


def run(args: argparse.Namespace) -> int:
    """Show it; 1 where there is no such run, 2 where there is no terminal."""
    try:
        folder = find(args.run)
    except LookupError as error:
        print(f"dstui: {error}", file=sys.stderr)
        return 1
    if not (os.isatty(0) and os.isatty(2)):
        print(f"dstui: no terminal here: dstui logs {folder.name} --follow shows the same lines", file=sys.stderr)
        return 2
    from dstui.tui import attach_tui

    return attach_tui(folder)
