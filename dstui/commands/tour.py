"""`dstui tour`: ten minutes in the real application, in a folder of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from dstui.base.output import no_screen, refuse, remark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("dstui-tour"), metavar="FOLDER", help="its folder (dstui-tour)")
    parser.add_argument("--again", action="store_true", help="begin at the first step, with a new Plan; runs stay")


def run(args: argparse.Namespace) -> int:
    """Take the tour, from where it was left; 0, or 2 with a sentence."""
    if why := no_screen():
        return refuse(f"{why}: the tour needs a terminal that draws screens")
    from dstui.tui import tour_tui
    from dstui.tui.tour.folder import TourFolder

    folder = TourFolder(args.folder)
    folder.prepare(again=args.again)
    folder.enter()
    status = tour_tui(folder)
    remark(f"tour     {folder.path}: `dstui tour {args.folder}` continues where you left; delete the folder when you are done")
    return status
