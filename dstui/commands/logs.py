"""`dstui logs [RUN]`: print the output of a job's ranks in order of arrival, each line with its rank; safe on any terminal."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

from dstui.base.arguments import a_rank, bounded
from dstui.base.files import is_folder
from dstui.base.output import Results, flush, put, refuse, say
from dstui.base.text import sanitise
from dstui.jobs.metrics.export import export
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import RUN, find
from dstui.jobs.store.ranks import hosts_of_ranks, rank_label
from dstui.jobs.store.record_forms import MAX_ATTEMPTS
from dstui.jobs.store.status import has_ended
from dstui.logs.decode import decode
from dstui.logs.grep import compile_search
from dstui.logs.levels import ALL, NAMES, Levels, level_named
from dstui.logs.time_parsing import format_clock, parse_moment
from dstui.logs.timeline import Slice, Timeline
from dstui.plan.patterns import Expression, compile_pattern

POLL = 0.2
FIND_EVERY = 1.0
"""Seconds between two looks for the job's end and for logs of further ranks."""


class Refused(Exception):
    """The options make no sense. Holds the reason as a sentence."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=RUN)
    parser.add_argument("--rank", type=a_rank, action="append", metavar="N", help="only this rank (may be given again)")
    parser.add_argument("--host", metavar="NAME", help="only the ranks of this host")
    parser.add_argument(
        "--attempt", type=bounded(int, 0, MAX_ATTEMPTS), metavar="N", help="only this attempt, counted from 1 (default: all)"
    )
    parser.add_argument("--level", metavar="LEVEL", help="only warnings and errors (warning), or errors (error); tracebacks stay whole")
    parser.add_argument("--since", metavar="TIME", help="only lines that came since 14:02, 14:02:11, or 10m (s, m, h, d) before the end")
    parser.add_argument("--time", action="store_true", help="the local time at which each line was seen, where that is known")
    parser.add_argument("--grep", metavar="TEXT", help="only lines in which this regular expression is found")
    parser.add_argument("--follow", action="store_true", help="follow until the job has ended; Ctrl-C leaves the job running")
    parser.add_argument(
        "--metrics",
        choices=("csv", "json"),
        help="instead of the lines, their numbers: step, rank, name, value, attempt, source (log or engine)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the logs. Return 0; 1 if there is no such run; 2 if an option is invalid or two contradict each other."""
    try:
        folder = find(args.run)
        if args.metrics:
            return _numbers(folder, args)
        timeline = Timeline(folder, _ranks(folder, args), _attempt(folder, args.attempt))
        tell = _teller(folder, timeline, args)
    except Refused as refused:
        return refuse(str(refused))
    tell(timeline.forth())
    if args.follow:
        _follow(folder, timeline, tell)
    return 0


def _numbers(folder: JobFolder, args: argparse.Namespace) -> int:
    if args.follow or any((args.grep, args.host, args.attempt, args.level, args.since, args.time)):
        raise Refused("--metrics reads all lines that exist now: it can only be combined with --rank")
    if not export(folder, args.metrics, Results(), args.rank or ()):
        say(f"{folder.name}: its logs have no known metrics (loss, lr, step, …){'' if has_ended(folder) else ' yet'}")
    return 0


def _ranks(folder: JobFolder, args: argparse.Namespace) -> set[int] | None:
    """Return the selected ranks; None for all, and the launcher."""
    status = folder.read_status()
    ranks = status.ranks if status else {}
    if unknown := [rank for rank in args.rank or () if ranks and rank not in ranks]:
        raise Refused(f"--rank {unknown[0]}: {folder.name} has ranks 0 to {max(ranks)}")
    if args.host is None:
        return set(args.rank) if args.rank else None
    hosts = {number: sanitise(rank.host) for number, rank in ranks.items()}
    if args.host not in hosts.values():
        raise Refused(f"--host {args.host}: {folder.name} has ranks on {', '.join(sorted(set(hosts.values()))) or 'no host yet'}")
    return {rank for rank, host in hosts.items() if host == args.host and (not args.rank or rank in args.rank)}


def _attempt(folder: JobFolder, attempt: int | None) -> int | None:
    if attempt is not None and (attempt < 1 or not is_folder(folder.attempt(attempt) / "logs")):
        status = folder.read_status()
        raise Refused(f"--attempt {attempt}: {folder.name} has no such attempt; its last is {status.attempt if status else 1}")
    return attempt


def _teller(folder: JobFolder, timeline: Timeline, args: argparse.Namespace) -> Callable[[Iterable[Slice]], None]:
    """Return a function that prints the selected lines of slices."""
    since = _since(timeline, args.since)
    least = _level(args.level)
    levels = Levels(least)
    wanted = _expression(args.grep)
    quick = compile_search(args.grep, regex=True, ignore_case=False) if wanted and least == ALL else None
    alone = bool(args.rank) and len(args.rank) == 1
    hosts = hosts_of_ranks(folder.read_status())

    def tell(slices: Iterable[Slice]) -> None:
        for part in slices:
            if since is not None and not (part.known and part.time >= since):
                continue
            stamp = f"{format_clock(part.time) if part.known else '':8} " if args.time else ""
            for log, rank, lines in timeline.read(part.parts, quick):
                if timeline.sources[log].file is timeline.notices:
                    continue
                who = "" if alone else f"{rank_label(rank, hosts)} "
                texts = (decode(line) for line in lines if levels.keep(log, line))
                put("".join(f"{stamp}{who}{text}\n" for text in texts if wanted is None or wanted.search(text)))

    return tell


def _since(timeline: Timeline, text: str | None) -> float | None:
    """Return the time from which lines are selected: counted back from now, or from the end of an ended job."""
    if text is None:
        return None
    latest = timeline.ended if timeline.job.final else time.time()
    found = parse_moment(text, latest)
    if found is None:
        raise Refused(f"--since {text}: not a time; examples: 14:02, 14:02:11, 90s, 10m, 2h, 1d")
    return found


def _level(word: str | None) -> int:
    least = ALL if word is None else level_named(word)
    if least is None:
        raise Refused(f"--level {word}: there are {', '.join(NAMES)} (or warn, err, info)")
    return least


def _expression(pattern: str | None) -> Expression | None:
    try:
        return compile_pattern(pattern) if pattern else None
    except ValueError as error:
        raise Refused(f"--grep {pattern}: {error}") from None


def _follow(folder: JobFolder, timeline: Timeline, tell: Callable[[Iterable[Slice]], Any]) -> None:
    """Print new lines until the job has ended."""
    found_at = 0.0
    while True:
        ended = False
        if time.monotonic() - found_at >= FIND_EVERY:
            found_at = time.monotonic()
            ended = has_ended(folder)
            timeline.find()
        tell(timeline.poll(time.time()))
        flush()
        if ended:
            tell(timeline.finish(time.time()))
            return
        time.sleep(POLL)
