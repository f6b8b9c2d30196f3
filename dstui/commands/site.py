"""`dstui site init|check`: make a site file for this machine, and test a site file against its templates."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import gethostname

from dstui.base.files import FileProblem, read_text, typed_path, write_atomic
from dstui.base.output import refuse, tell
from dstui.base.text import sanitise
from dstui.plan import PlanError
from dstui.site.installed import SITE_FILE, VARIABLE, open_site, site_path
from dstui.site.site_file import Site

SECONDS = 10
"""Seconds for SLURM's controller to answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="init|check")
    init = actions.add_parser("init", help="print a site file to begin with, with facts about this machine; every entry is commented out")
    init.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"write it into a file ({SITE_FILE})")
    check = actions.add_parser("check", help="test a site file: its form, its templates, its machines, its causes")
    check.add_argument("file", nargs="?", type=Path, metavar="FILE", help=f"default: ${VARIABLE}, else {SITE_FILE}")


def run(args: argparse.Namespace) -> int:
    """Run the action. Return 0; 1 if the site has mistakes; 2 after an error."""
    return _init(args.output) if args.action == "init" else _check(args.file or site_path())


def _init(output: Path | None) -> int:
    from dstui.machine.probe import probe
    from dstui.site.first_site import SiteFacts, first_site

    gpus = [str(gpu.name) for gpu in probe().gpus]
    text = first_site(SiteFacts(gethostname(), gpus, list(_partitions()), _ssh_hosts(), dict(os.environ)))
    if output is None:
        tell(text, end="")
        return 0
    state = "written" if write_atomic(output, text) else "unchanged"
    tell(f"{state}  {output}\nnext     edit it, then: dstui site check {output}")
    return 0


def _partitions() -> Iterator[str]:
    """Yield SLURM's partitions, the default one first."""
    sinfo = shutil.which("sinfo")
    if sinfo is None:
        return
    with suppress(OSError, subprocess.TimeoutExpired):
        ran = subprocess.run([sinfo, "--noheader", "--format=%P"], capture_output=True, text=True, timeout=SECONDS, check=False)
        names = ran.stdout.split() if ran.returncode == 0 else []
        yield from (name.rstrip("*") for name in sorted(dict.fromkeys(names), key=lambda name: not name.endswith("*")))


def _ssh_hosts() -> list[str]:
    from dstui.plan.hostfile import ssh_hosts

    with suppress(FileProblem):
        return ssh_hosts(read_text(typed_path("~/.ssh/config")))
    return []


def _check(path: Path | None) -> int:
    if path is None:
        return refuse(f"${VARIABLE} is empty, so there is no site file: dstui site check FILE names one")
    site = open_site(path)
    wrong = list(_mistakes(site))
    for line in wrong:
        tell(sanitise(line))
    templates = len(list(_templates(site)))
    verdict = f"{len(wrong)} wrong" if wrong else "nothing wrong"
    counts = {"lock": len(site.locks), "template": templates, "machine": len(site.machines)}
    tell(f"{path}: {verdict}; " + ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items()))
    return int(bool(wrong))


def _templates(site: Site) -> Iterator[tuple[str, Path]]:
    from dstui.documents.layers import site_templates

    return ((template.name, template.path) for template in site_templates(site))


def _mistakes(site: Site) -> Iterator[str]:
    """Yield the mistakes of a site file with a valid form, each with the file that it is about."""
    from dstui.commands.checked_defaults import wrong_defaults
    from dstui.diagnosis.signatures import BY_ID
    from dstui.plan import load
    from dstui.plan.locks import broken_locks, describe_broken

    for finding in wrong_defaults(site.layer):
        yield PlanError([], site.source).sentence(finding)
    if site.templates and not Path(site.templates).is_dir():
        yield f"{site.source}: templates: there is no folder {site.templates}"
    for _, path in _templates(site):
        try:
            plan = load(read_text(path), str(path), str(path.parent), site.beneath)
        except (FileProblem, PlanError) as error:
            yield str(error)
            continue
        for lock, value in broken_locks(plan):
            yield f"{path}:{plan.line_of(lock.path) or 1}: {lock.path}: {describe_broken(plan, lock, value)} ({site.source}:{lock.line})"
    for name, file in site.machines.items():
        if problem := _unreadable(file):
            yield f"{site.source}: machines.{name}: {problem}"
    for cause in site.causes:
        if cause not in BY_ID:
            yield f"{site.source}: causes.{cause}: no cause has this id (`dstui docs --causes` lists them)"


def _unreadable(file: str) -> str:
    """Return why a file does not hold a recorded machine; "" if it does."""
    from dstui.machine.recorded import read_machine

    try:
        read_machine(Path(file))
    except FileProblem as problem:
        return str(problem)
    return ""
