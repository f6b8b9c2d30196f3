"""`dstui diagnose [PATH…]`: why a run failed, from its logs, whoever started it."""

from __future__ import annotations

import argparse
import os
import time
from datetime import datetime
from typing import Any

from dstui.base.files import FileProblem
from dstui.base.output import json_text, refuse, say, tell
from dstui.base.text import sanitise
from dstui.base.user_error import NoRun
from dstui.diagnosis import Diagnosis, diagnose, report
from dstui.diagnosis.job.notes import latest_failures, repeated, with_history
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import find, known_runs, runs
from dstui.jobs.store.records import JobStatus
from dstui.logs.time_parsing import parse_iso, parse_moment

FORMATS = ("text", "json", "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="logs (also gzip), folders and zips of logs, a run by its name, folder or bundle, or - for standard input "
        "(default: the newest run of this folder)",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="every run of this folder that started since 14:02, 2026-03-01, or 2d (s, m, h, d) ago, one line each",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="how to print it; markdown is for pasting (default: text)")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the diagnosis as one JSON object: --format json")


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis. Return 0 if there is an answer, 1 if the logs do not show the cause, 2 if one cannot be read or found."""
    if args.since is not None:
        return refuse("--since is for runs of this folder: leave out the paths") if args.paths else _since(args.since, args.format)
    try:
        paths = [_path(name) for name in args.paths] or [str(find().path)]
        diagnosis = diagnose(paths)
    except (FileProblem, NoRun) as error:
        return refuse(str(error))
    if len(paths) == 1:
        diagnosis = with_history(diagnosis, JobFolder(paths[0]))
    tell(_dumped(diagnosis.as_json()) if args.format == "json" else report(diagnosis, markdown=args.format == "markdown"))
    return 0 if diagnosis.found else 1


def _dumped(found: dict[str, Any]) -> str:
    return json_text(found, 1)


def _path(name: str) -> str:
    """Return what a word names: an existing path, else the folder of the run of that name."""
    if name == "-" or os.path.exists(name) or "/" in name:  # noqa: PTH110 - false, not an error, for a name that is too long
        return name
    try:
        return str(find(name).path)
    except NoRun as error:
        raise NoRun(f"{name}: no such file or folder. {error}") from None


def _since(text: str, form: str) -> int:
    """Print why each run of this folder that started since then ended. Return 1 if there is none."""
    moment = parse_moment(text, time.time())
    moment = parse_iso(text) if moment is None else moment
    if moment is None:
        return refuse(f"--since {text}: not a time; examples: 14:02, 14:02:11, 90s, 10m, 2h, 1d, 2026-03-01")
    here = {one.folder.path for one in known_runs() if one.is_here}
    found = [(folder, status) for folder, status in runs() if folder.path in here and (status.started or 0) >= moment]
    if not found:
        say(f"No run was started in this folder since {datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}")
        return 1
    answers = [(folder, status, _diagnosed(folder)) for folder, status in found]
    sentence = repeated(latest_failures(found))
    if form == "json":
        listed = [
            {"folder": str(folder.path), "state": status.state, "diagnosis": answer and answer.as_json()}
            for folder, status, answer in answers
        ]
        tell(_dumped({"version": 1, "runs": listed, "repeated": sentence or None}))
        return 0
    bullet = "- " if form == "markdown" else ""
    for folder, status, answer in answers:
        tell(bullet + sanitise(_line(folder, status, answer)))
    if sentence:
        tell(f"\n{sentence}" if bullet else sentence)
    return 0


def _diagnosed(folder: JobFolder) -> Diagnosis | None:
    """Return the diagnosis of a run; None if its logs cannot be read."""
    try:
        return diagnose([folder.path])
    except FileProblem:
        return None


def _line(folder: JobFolder, status: JobStatus, answer: Diagnosis | None) -> str:
    """Return one line about a run: its name, its state, the cause, and who was first."""
    if answer is None:
        return f"{folder.name}  {status.state}  its logs cannot be read"
    who = "" if answer.first_failing_rank is None else f"  [rank {answer.first_failing_rank}{f' on {answer.host}' if answer.host else ''}]"
    return f"{folder.name}  {status.state}  {answer.cause or '?'}  {answer.title}{who}"
