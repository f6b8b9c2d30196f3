"""`dstui check FILE…`: findings for Plans, ds_config.json and accelerate YAML, for people and for hooks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dstui.base.limits import MAX_RANKS
from dstui.base.output import Ink, coloured, refuse, tell
from dstui.base.text import sanitise
from dstui.commands.checked_file import Asked, CheckedFile, check_files
from dstui.commands.plan_argument import add_no_site
from dstui.documents.plan_files import find_plan
from dstui.documents.trusted_python import HELP, OPTION
from dstui.machine.snapshot import Machine
from dstui.plan.catalogue import RELEASES, is_version, nearest_release, version_tuple
from dstui.plan.finding import Finding, describe_moment
from dstui.plan.model import INTEGRATIONS

COLOURS = {"error": Ink("\033[31m"), "warning": Ink("\033[33m"), "info": Ink("\033[36m")}
PLAIN = Ink("\033[0m")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a Plan, a ds_config.json or an accelerate YAML")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="one JSON object: --format json")
    parser.add_argument(
        "--format", choices=("text", "json", "github"), default="text", help="how to print it; github is annotations of a workflow"
    )
    parser.add_argument("--strict", action="store_true", help="warnings fail too")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="check for the machine recorded in FILE")
    parser.add_argument("--world-size", type=int, metavar="N", help="the number of ranks (else the Plan's, else unknown)")
    parser.add_argument("--integration", choices=INTEGRATIONS, help="who reads the configuration")
    parser.add_argument("--deepspeed-version", metavar="V", help=f"check for this release (known: {', '.join(RELEASES)})")
    parser.add_argument("--reference", "--oracle", choices=("parse", "init"), help="also check with the installed DeepSpeed")
    parser.add_argument(OPTION, action="store_true", help=f"{HELP}, for --reference")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a key of the Plans")
    add_no_site(parser)


def run(args: argparse.Namespace) -> int:
    """Check and print. Return 0 without errors, 1 with errors, 2 if a file could not be read."""
    try:
        machine = _recorded(args.machine) if args.machine else None
        if args.deepspeed_version:
            nearest_release(args.deepspeed_version)
    except ValueError:
        return refuse(f"--deepspeed-version {args.deepspeed_version}: a version is three numbers, such as {RELEASES[-1]}")
    if args.world_size is not None and not 1 <= args.world_size <= MAX_RANKS:
        return refuse(f"--world-size: 1 to {MAX_RANKS:,} ranks")
    on_machine = machine.software.deepspeed if machine is not None else None
    version = args.deepspeed_version or (str(on_machine) if is_version(on_machine) else None) or installed_deepspeed()
    asked = Asked(machine, args.world_size, args.integration, version, tuple(args.set), not args.no_site)
    checked = check_files([find_plan(str(path)) for path in args.files], asked)
    verdicts: dict[str, dict[str, Any]] = {}
    if args.reference:
        from dstui.commands.ask_reference import ask

        verdicts = ask(checked, args.reference, trust=args.trust_python)
    code = _status(checked, args.strict)
    if args.format == "github":
        tell("".join(f"{line}\n" for one in checked for line in _annotations(one)), end="")
    elif args.format == "json":
        tell(json.dumps({**_as_json(checked, verdicts, code), "deepspeed": nearest_release(version)}, indent=2))
    else:
        _print(checked, version)
    return code


def _recorded(path: Path) -> Machine:
    from dstui.machine.recorded import read_machine  # most checks need no machine

    return read_machine(path)


def installed_deepspeed() -> str | None:
    """Return the release of DeepSpeed installed beside dstui; None if there is none."""
    from dstui.machine.software import versions  # importing importlib.metadata takes a tenth of the whole command

    return versions("deepspeed")["deepspeed"]


def _status(checked: list[CheckedFile], strict: bool) -> int:
    if any(one.error for one in checked):
        return 2
    bad = ("error", "warning") if strict else ("error",)
    return int(any(finding.severity in bad for one in checked for finding in one.findings))


def _as_json(checked: list[CheckedFile], verdicts: dict[str, dict[str, Any]], code: int) -> dict[str, Any]:
    files = [
        {
            "file": one.file,
            "error": one.error,
            "line": one.line,
            "column": one.column,
            "kind": one.kind,
            "integration": one.integration,
            "world_size": one.world_size,
            "diagnostics": [finding.as_json() | {"column": finding.column} for finding in one.findings],
            "oracle": verdicts.get(one.file),
        }
        for one in checked
    ]
    return {"version": 1, "ok": code == 0, "files": files}


def _print(checked: list[CheckedFile], version: str | None) -> None:
    colour = coloured()
    if version and version_tuple(nearest_release(version)) != version_tuple(version):
        tell(f"DeepSpeed {version} is checked as {nearest_release(version)}, the nearest release with a catalogue")
    for one in checked:
        tell(_headline(one))
        for finding in one.findings:
            _say(one, finding, colour)


LEVELS = {"error": "error", "warning": "warning", "info": "notice"}
"""Severity -> the word of GitHub's workflow commands."""


def _annotations(one: CheckedFile) -> Iterator[str]:
    """Yield a file's findings as workflow commands of GitHub Actions, which shows them at their lines."""
    if one.error:
        yield _annotation("error", one.file, one.line, "dstui", one.error)
    for finding in one.findings:
        why = f"\nwhy: {finding.why}" if finding.why else ""
        message = finding.message + why + (f"\nfix: {finding.fix.text}" if finding.fix else "")
        yield _annotation(LEVELS[finding.severity], one.file, finding.line, f"dstui {finding.code}", message)


def _annotation(level: str, file: str, line: int | None, title: str, message: str) -> str:
    """Return one workflow command; % and line ends are escaped as GitHub reads them (actions/toolkit, command.ts)."""
    text = "\n".join(map(sanitise, message.split("\n"))).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    values = {"file": file, "line": str(line or 1), "title": title}
    given = ",".join(f"{name}={_escape_property(value)}" for name, value in values.items())
    return f"::{level} {given}::{text}"


def _escape_property(value: str) -> str:
    value = sanitise(value).replace("%", "%25")
    return value.replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")


def _headline(one: CheckedFile) -> str:
    if one.error:
        return ":".join(str(part) for part in (one.file, one.line, one.column) if part) + f": {one.error}"
    counts = {name: sum(f.severity == name for f in one.findings) for name in ("error", "warning", "info")}
    words = [f"{n} {name}{'s' if n > 1 and name != 'info' else ''}" for name, n in counts.items() if n]
    reader = one.integration + (" (guessed)" if one.assumed else "")
    ranks = f", {one.world_size} ranks" if one.world_size else ""
    return f"{one.file}: {', '.join(words) or 'no findings'}" + (f"  [{reader}{ranks}]" if reader else "")


def _say(one: CheckedFile, finding: Finding, colour: bool) -> None:
    start, end = (COLOURS[finding.severity], PLAIN) if colour else ("", "")
    moment = f", {describe_moment(finding.when, one.integration)}" if finding.when else ""
    where = (f"{one.file}:{finding.line}" if finding.line else one.file) + (f" {finding.path}" if finding.path else "")
    tell("  ", start, f"{finding.severity} {finding.code}", end, f" {where}{moment}")
    lines = [f"      {finding.message}"]
    shown = _line(one.text, finding.line)
    if shown:
        lines.append(f"      {finding.line:>4} | {shown}")
    if finding.why:
        lines.append(f"      why: {finding.why}")
    if finding.fix:
        lines.append(f"      fix: {finding.fix.text}")
    tell("\n".join(lines))


def _line(text: str, number: int | None) -> str:
    lines = text.splitlines()
    if not number or number > len(lines):
        return ""
    shown = "".join(letter if letter.isprintable() else "·" for letter in lines[number - 1].expandtabs(2).rstrip())
    return shown[:120]
