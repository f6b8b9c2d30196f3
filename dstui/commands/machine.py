"""`dstui machine`: show this machine, a recorded one, or every host of a hostfile, as a report or as JSON."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstui.base.arguments import seconds
from dstui.base.files import FileProblem, check_unused, read_text, write_atomic
from dstui.base.output import remark, tell
from dstui.check.rules.machine.machine_findings import machine_finding_lines
from dstui.machine.probe import probe
from dstui.machine.recorded import mask_names, read_machine
from dstui.machine.report import render_report, summarise
from dstui.plan.hostfile import HostfileError, parse_hostfile

if TYPE_CHECKING:
    from dstui.machine.remote import HostView
    from dstui.machine.snapshot import Machine

HERE_SECONDS, THERE_SECONDS = 5.0, 15.0
"""Deadlines in seconds: for this machine, and for a host over ssh, where a login shell and a cold file system also take time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--json", action="store_true", help="the whole snapshot as JSON")
    parser.add_argument("--save", metavar="FILE", type=Path, help="write the snapshot to FILE, for --machine FILE elsewhere")
    parser.add_argument("--force", action="store_true", help="let --save replace a file with other content")
    parser.add_argument("--machine", metavar="FILE", type=Path, help="show a snapshot or a pasted `nvidia-smi topo -m` instead")
    parser.add_argument("--hosts", metavar="HOSTFILE", type=Path, help="probe every host of a hostfile over ssh, all at once")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=1.0,
        metavar="SECONDS",
        help="show the load of GPUs, CPU and RAM every second (or so many), until Ctrl-C; with --json an object each time",
    )
    parser.add_argument("--full", action="store_true", help="include serial numbers and the user's name")
    parser.add_argument(
        "--deadline", metavar="SECONDS", type=seconds, help="stop probing after this time (default: 5; 15 for each of --hosts)"
    )


def run(args: argparse.Namespace) -> int:
    """Show the machine or the hosts. Return 0; 2 if a file cannot be read or written."""
    if args.watch:
        return _watch(args)
    return _hosts(args) if args.hosts else _machine(args)


def _watch(args: argparse.Namespace) -> int:
    from dstui.commands.machine_watch import watch

    if args.hosts or args.machine or args.save:
        raise FileProblem("--watch shows this machine: it cannot be combined with --hosts, --machine or --save")
    return watch(args.watch, as_json=args.json)


def _machine(args: argparse.Namespace) -> int:
    if args.save and not args.machine and not args.force:
        check_unused(args.save)
    machine = read_machine(args.machine) if args.machine else probe(args.deadline or HERE_SECONDS, serials=args.full)
    if args.save and not args.machine:
        machine = _with_types(machine)
    data = machine.to_json()
    text = json.dumps(data if args.full else mask_names(data), indent=1) + "\n"
    if args.save:
        write_atomic(args.save, text, replace=args.force)
    tell(text if args.json else render_report(machine, machine_finding_lines(machine)), end="")
    if args.save:
        remark(f"saved to {args.save}: dstui COMMAND --machine {shlex.quote(str(args.save))} works from it")
    return 0


def _with_types(machine: Machine) -> Machine:
    """Add, for a snapshot that is saved, what only DeepSpeed knows of a machine without GPUs. The import takes seconds."""
    from dstui.check.reference import ReferenceChecker, ReferenceFailure, add_float_types

    if machine.accelerator == "cpu":
        with suppress(ReferenceFailure), ReferenceChecker() as checker:
            return add_float_types(machine, checker.types())
    return machine


def _hosts(args: argparse.Namespace) -> int:
    from dstui.machine.remote import probe_hosts

    if args.machine or args.save:
        raise FileProblem("--hosts probes several machines now: it cannot be combined with --machine or --save")
    try:
        slots = parse_hostfile(read_text(args.hosts))
    except HostfileError as error:
        raise FileProblem(f"{args.hosts}: {error}") from None
    views = probe_hosts(list(slots), args.deadline or THERE_SECONDS)
    if args.json:
        tell(json.dumps({"version": 1, "hosts": [{"slots": slots[view.host], **_json(view)} for view in views]}, indent=1))
    else:
        tell("\n".join(line for view in views for line in _lines(view, slots[view.host], max(map(len, slots)))))
    return 0


def _json(view: HostView) -> dict[str, Any]:
    failure = view.failure and {"id": view.failure.id, "problem": view.failure.problem, "fix": view.failure.fix}
    return {"host": view.host, "failure": failure, "machine": view.machine and view.machine.to_json()}


def _lines(view: HostView, slots: int, width: int) -> Iterator[str]:
    name = view.host.ljust(width)
    count = f"{slots} slot{'s' * (slots != 1)}"
    if view.machine:
        software = view.machine.software
        versions = f"torch {software.torch or 'not installed'}, deepspeed {software.deepspeed or 'not installed'}"
        yield f"{name}  {count}  {summarise(view.machine)}; {versions}"
    if view.failure:
        yield f"{name}  {count}  not ready: {view.failure.problem}"
        yield f"{' ' * width}  {view.failure.fix}"
