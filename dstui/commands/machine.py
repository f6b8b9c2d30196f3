"""`dstui machine`: what this machine has, or a recorded one, as a report or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dstui.files import FileProblem, write_atomic
from dstui.machine.probe import probe
from dstui.machine.recorded import read_machine
from dstui.machine.report import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="the whole snapshot as JSON")
    parser.add_argument("--save", metavar="FILE", type=Path, help="write the snapshot to FILE, for --machine FILE elsewhere")
    parser.add_argument("--force", action="store_true", help="let --save replace a file that holds something else")
    parser.add_argument("--machine", metavar="FILE", type=Path, help="show a snapshot or a pasted `nvidia-smi topo -m` instead")
    parser.add_argument("--serials", action="store_true", help="include the serial numbers of the GPUs, which are left out otherwise")
    parser.add_argument("--deadline", metavar="SECONDS", type=float, default=5.0, help="stop looking after this time (default: 5)")


def run(args: argparse.Namespace) -> int:
    """Show the machine; 0, or 2 where a file cannot be read or written."""
    try:
        machine = read_machine(args.machine) if args.machine else probe(args.deadline, serials=args.serials)
        text = json.dumps(machine.to_json(), indent=1) + "\n"
        if args.save:
            write_atomic(args.save, text, replace=args.force)
    except FileProblem as problem:
        print(f"dstui: {problem}", file=sys.stderr)
        return 2
    sys.stdout.write(text if args.json else report(machine))
    if args.save:
        print(f"saved to {args.save}: dstui COMMAND --machine {args.save} works from it", file=sys.stderr)
    return 0
