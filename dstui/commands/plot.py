"""`dstui plot RUN…`: metrics of runs over their steps, as curves of text or as a picture (SVG); several runs in one plot."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.arguments import bounded
from dstui.base.files import check_unused, write_atomic
from dstui.base.output import Ink, coloured, draws_unicode, refuse, say, tell, width
from dstui.jobs.store.index import RUN, find

if TYPE_CHECKING:
    from dstui.jobs.metrics.series import MetricSeries
    from dstui.tui.plot.curves import Picture

MAX_RUNS = 8
SECONDS = 60.0
"""Seconds for reading the logs of a run. Of longer logs the part read so far is drawn, with a remark."""
WIDTH, HEIGHT = 100, 16
INKS = (34, 33, 32, 31, 35, 36, 94, 93)
"""ANSI colours of the lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN}; up to {MAX_RUNS} are drawn into one plot")
    parser.add_argument(
        "--metric", action="append", metavar="NAME", help="what is drawn (default: loss); may be given again, for several plots"
    )
    parser.add_argument("--log", action="store_true", help="a logarithmic axis for the values")
    parser.add_argument("--smooth", type=bounded(float, 0, 0.999), default=0.0, metavar="WEIGHT", help="TensorBoard's smoothing: 0.6, 0.9")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.svg", help="write a picture instead")
    parser.add_argument("--force", action="store_true", help="let -o replace a file with other content")
    parser.add_argument("--ascii", action="store_true", help="only ASCII, for terminals that draw nothing else")
    parser.add_argument("--height", type=bounded(int, 4, 200), default=HEIGHT, metavar="LINES", help=f"of each plot (default: {HEIGHT})")
    parser.epilog = "example: dstui plot first second --metric loss --metric grad_norm --smooth 0.6 -o curves.svg"


def run(args: argparse.Namespace) -> int:
    """Draw the plots. Return 0; 1 if there is no such run or metric; 2 if the picture cannot be written."""
    from dstui.jobs.metrics.series import MetricSeries

    folders = list(dict.fromkeys(map(find, args.runs or [""])))
    if args.output is not None and not args.force:
        check_unused(args.output)
    if len(folders) > MAX_RUNS:
        return refuse(f"up to {MAX_RUNS} runs are drawn into one plot, and these are {len(folders)}")
    read = [MetricSeries(folder) for folder in folders]
    try:
        for series in read:
            _read(series)
        return _draw(args, read)
    finally:
        for series in read:
            series.close()


def _read(series: MetricSeries) -> None:
    deadline = time.monotonic() + SECONDS
    while series.advance(0.5) and time.monotonic() < deadline:
        pass
    if not series.complete or series.stride > 1:
        say(f"{series.folder.name}: its logs are long, and only part of them is drawn")


def _draw(args: argparse.Namespace, read: Sequence[MetricSeries]) -> int:
    from dstui.tui.plot.printed import CELLS, as_svg, room

    told = list(dict.fromkeys(name for series in read for name in series.names()))
    wanted = args.metric or (["loss"] if "loss" in told else told[:1])
    if missing := [name for name in wanted if name not in told]:
        say(f"no run has {', '.join(missing)}; they have {', '.join(told) or 'no metric'}")
        return 1
    if not wanted:
        say("no line has a metric")
        return 1
    cells = CELLS if args.output is not None else (room(width() or WIDTH), args.height)
    plots = [(name, _picture(args, read, name, cells)) for name in wanted]
    if args.output is not None:
        state = "written" if write_atomic(args.output, as_svg(plots), replace=args.force) else "unchanged"
        tell(f"{state}  {args.output}")
    else:
        for name, shown in plots:
            _tell(args, read, name, shown, cells)
    return 0


def _picture(args: argparse.Namespace, read: Sequence[MetricSeries], name: str, cells: tuple[int, int]) -> Picture:
    """Return the plot of one metric, of the runs that have it."""
    from dstui.runs.columns import metric_text
    from dstui.tui.plot.curves import View, picture

    telling = [series for series in read if name in series.names()]
    return picture(telling[0], View(name, weight=args.smooth, log=args.log), cells, metric_text, telling[1:])


def _tell(args: argparse.Namespace, read: Sequence[MetricSeries], name: str, shown: Picture, cells: tuple[int, int]) -> None:
    from dstui.tui.plot.printed import as_text

    about = [name, read[0].folder.name if len(read) == 1 else f"{len(read)} runs", "log" if args.log else "", shown.faults]
    about += [f"smoothed {args.smooth:g}" if args.smooth else ""]
    tell("  ".join(filter(None, about)))
    paint = _painted if coloured() else (lambda text, _: text)
    for line in as_text(shown, cells, paint, ascii_only=args.ascii or not draws_unicode()):
        tell(Ink(line))
    if shown.left_out:
        say(f"{shown.left_out:,} values of 0 or less cannot be drawn on a logarithmic axis")


def _painted(text: str, number: int) -> str:
    return f"\x1b[{INKS[number % len(INKS)]}m{text}\x1b[0m"
