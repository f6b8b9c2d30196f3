# ruff: noqa: N999 - the command is called so
"""`dstui import FILE`: make a Plan of a ds_config.json, an accelerate YAML, a launch, a hostfile or a .deepspeed_env."""

from __future__ import annotations

import argparse
import re
import shlex
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dstui.base.files import FileProblem, is_file, is_folder, read_standard_input, read_text, write_atomic
from dstui.base.output import refuse, say, tell
from dstui.documents.open import Opened, open_document, open_text
from dstui.plan import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="ds_config.json, accelerate YAML, a script with a launch in it, hostfile, .deepspeed_env; - is text pasted to standard input;"
        " -- COMMAND … is a command as you would type it",
    )
    parser.add_argument("--launch", type=int, metavar="N", help="the Nth of several launches in a text, in the order of the list")
    parser.add_argument("-o", "--output", type=Path, metavar="PLAN", help="write the Plan into a file instead of to standard output")
    parser.add_argument("--force", action="store_true", help="let -o replace a file with other content")


def run(args: argparse.Namespace) -> int:
    """Print or write the Plan, and print what was changed or not understood. Return 0; 2 after an error."""
    if not args.files and not args.command:
        return refuse("import takes a file, - or -- COMMAND …")
    if args.launch is not None and args.launch < 1:
        return refuse("--launch counts from 1")
    opened = [_opened(name, args.launch or 0) for name in args.files]
    opened += [open_text(shlex.join(args.command), args.launch or 0, "command")] if args.command else []
    plan = _joined(opened)
    for note in (note for one in opened for note in one.notes):
        say(note)
    for one in opened:
        for finding in one.findings:
            say(f"{one.plan.source}:{finding.line}: {finding.severity} {finding.code}: {finding.message}; the Plan has the last")
    if args.output is None:
        tell(plan.text, end="")
    else:
        state = "written" if write_atomic(args.output, plan.text, replace=args.force) else "unchanged"
        tell(f"{state}  {args.output}")
    return 0


LAUNCHERS = re.compile(r"(?m)^[^#\n]*\b(?:deepspeed|torchrun|accelerate[ \t]+launch|torch\.distributed\.run)[ \t]+\S")
MAX_FILES, MAX_SHOWN = 300, 6
"""Files of a folder that are read, and that are named."""


def _launches_in(folder: Path) -> list[str]:
    """Return the files of a folder in which a launcher is called."""
    found, names = [], list[Path]()
    with suppress(OSError):
        names = sorted(islice(folder.iterdir(), MAX_FILES))
    for path in names:
        with suppress(FileProblem):
            if is_file(path) and LAUNCHERS.search(read_text(path)):
                found.append(shlex.quote(str(path)))
    return found


def _opened(name: str, launch: int) -> Opened:
    if name != "-" and is_folder(name):
        found = _launches_in(Path(name))
        more = ", …" if len(found) > MAX_SHOWN else ""
        raise FileProblem(f"{name} is a folder: name a file in it" + (f": {', '.join(found[:MAX_SHOWN])}{more}" if found else ""))
    return open_text(read_standard_input(), launch) if name == "-" else open_document(name, launch=launch)


def _joined(opened: list[Opened]) -> Plan:
    """Return the first Plan, completed from the others: the hosts of a hostfile, the variables of a .deepspeed_env."""
    plan, *others = [one.plan for one in opened]
    for other in others:
        for section in ("job", "cluster", "accelerate", "deepspeed"):
            for name, value in other.data.get(section, {}).items():
                if plan.get(f"{section}.{name}") is None and not (name == "hosts" and plan.cluster.hostfile):
                    plan = plan.set(f"{section}.{name}", value)
                elif plan.get(f"{section}.{name}") != value:
                    say(f"{section}.{name}: {other.source} has another value than {plan.source}, which is used")
    return plan
