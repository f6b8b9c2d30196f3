"""Run `dstui --headless PLAN`: check, launch, stream the lines of all ranks, and exit with the job's status.

Standard output carries the ranks' lines (with --json: events), standard error dstui's own messages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import dstui
from dstui.assess import assess
from dstui.base.files import FileProblem, write_atomic
from dstui.base.output import flush, refuse, remark, say, tell
from dstui.documents.open import open_document
from dstui.documents.plan_files import read_pool
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, PlanError
from dstui.plan.finding import Finding
from dstui.plan.holes import describe_open_holes, fill_holes, unescape_holes
from dstui.render.artifacts import artifacts, ds_configs
from dstui.render.config_files import PLACEHOLDER, config_name, with_paths
from dstui.render.launch import RenderError, open_holes
from dstui.render.target import Target
from dstui.surroundings import gather

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder

ENV_FILES = "PL051"
"""The finding about which .deepspeed_env reaches the ranks. A launch prints it, though nothing is wrong."""
OPEN_HOLE = "PL070"
"""The finding about a hole. It is not printed if a note of the import names the hole."""


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if not args.file:
        return refuse("--headless takes a Plan: dstui --headless PLAN (`quickstart` is a shipped one)")
    if args.strict and args.detach:
        return refuse("--strict cannot be used with --detach: no process would watch whether a rank reads the configuration")
    if args.machine and not args.dry_run:
        return refuse("--headless takes --machine only together with --dry-run: a job runs on this machine, not on a recorded one")
    try:
        sets = [*args.set, "run.observe=off"] if args.no_observe else args.set
        opened = open_document(args.file, sets, args.script)
        plan = opened.plan if args.dry_run else fill_holes(opened.plan, os.environ)
        read_pool(plan)  # before the machine, which takes longer
        target, facts = gather(plan, find_machine(args.machine, plan), launches=True)
    except (FileProblem, PlanError) as error:
        return refuse(str(error))
    if args.trust_site:
        from dstui.documents.trusted_lines import agree  # which hardly a launch needs

        agree(plan)
    findings = assess(target, facts).findings
    for note in opened.notes:
        say(note)
    say_findings(plan, opened.findings, False)
    say_findings(plan, [one for one in findings if not _is_told(one, opened.notes)], opened.made)
    if any(finding.severity == "error" for finding in (*opened.findings, *findings)):
        return refuse("nothing was started: fix the errors above")
    if args.dry_run:
        return _show(target, as_json=args.json)
    if still_open := open_holes(plan):
        return refuse(describe_open_holes(still_open))
    if plan.job.command:
        return _run_command(plan, args)
    return _launch(target, [finding for finding in findings if finding.severity != "info"], args)


def find_machine(path: str | None, plan: Plan) -> Machine:
    """Return the recorded machine of a file, or this machine."""
    if path:
        from dstui.machine.recorded import read_machine

        return read_machine(Path(path))
    from dstui.machine.probe import probe

    machine = probe()
    if plan.get("deepspeed.fp16.enabled") is not True:
        return machine
    from dstui.check.reference import ask_float_types  # only DeepSpeed knows whether CPUs can train in fp16

    return ask_float_types(plan, machine)


def _is_told(finding: Finding, notes: Sequence[str]) -> bool:
    """Return whether a finding is about a hole that the notes of an import name already."""
    hole = finding.message.partition(":")[0]
    return finding.code == OPEN_HOLE and any(note.startswith(hole) for note in notes)


def say_findings(plan: Plan, findings: Sequence[Finding], made: bool) -> None:
    """Print the findings that prevent a launch. `made`: the Plan was imported, so lines are not its own."""
    for finding in findings:
        if finding.severity != "info" or finding.code == ENV_FILES:
            where = f"{plan.source}:{finding.line}" if finding.line and not made else plan.source
            where = "--set" if finding.path in plan.sets else where
            named = " ".join(filter(None, (finding.severity, finding.code, finding.path)))
            remark(f"{where}: {named}: {finding.message}{finding.instruction}")


def _run_command(plan: Plan, args: argparse.Namespace) -> int:
    """Run a command that starts its own ranks as `dstui run` does: its launches become jobs. Returns only if it cannot run."""
    if args.detach or args.json or args.run_dir or args.strict:
        return refuse(
            "--detach, --json, --run-dir and --strict cannot be combined with job.command: its launches get their own job folders"
        )
    words = [unescape_holes(word) for word in plan.job.command]
    if any(PLACEHOLDER.search(word) for word in words):
        try:
            config = _write_configs(plan)
        except (OSError, FileProblem) as error:
            return refuse(f"cannot write the configuration of job.command: {error}")
        words = [with_paths(word, config) for word in words]
    package = str(Path(dstui.__file__).parent.parent)
    program = f"import sys; sys.path.insert(0, {package!r}); from dstui.cli import main; sys.exit(main())"
    flush()
    try:
        os.chdir(plan.place(plan.job.workdir))
    except OSError as error:
        return refuse(f"job.workdir: {error.strerror}: {error.filename}")
    environment = {**os.environ, **{name: unescape_holes(value) for name, value in plan.cluster.env.items()}}
    os.execve(sys.executable, [sys.executable, "-I", "-c", program, "run", "--", *words], environment)


def _write_configs(plan: Plan) -> str:
    """Write the configurations that a command names and return the path of ds_config.json. Its launches copy them into job folders."""
    from dstui.jobs.store.folder import RUNS_FOLDER

    folder = Path.cwd() / RUNS_FOLDER / f"config-{re.sub(r'[^A-Za-z0-9_-]', '_', plan.name or '')[:80]}"
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in ds_configs(plan):
        write_atomic(folder / artifact.name, artifact.text, replace=True)
    return str(folder / config_name(""))


def _show(target: Target, *, as_json: bool) -> int:
    """Print the files of a launch; with --json, each as an event."""
    try:
        files = artifacts(target)
    except RenderError as error:
        return refuse(str(error))
    for one in files:
        event = {"event": "file", "name": one.name, "why": one.why, "text": one.text}
        tell(json.dumps(event) if as_json else f"# {one.name}: {one.why}\n{one.text}")
    remark("Nothing was started (--dry-run).")
    return 0


def _not_shared(target: Target, run_dir: Path | None) -> bool:
    """Return whether the nodes of a cluster cannot all see the job's folders, and print which."""
    from dstui.jobs.control.submit import sharing_problem

    folders = (run_dir or Path.cwd(), Path(target.launch.workdir))
    found = dict.fromkeys(filter(None, map(sharing_problem, folders)))
    for problem in found:
        remark(problem)
    return bool(found)


def _not_ready(target: Target, run_dir: Path | None) -> bool:
    """Return whether a host is not ready for this job, and print what is wrong and what to do.

    A job of this machine needs no such check.
    """
    from dstui.jobs.control.start import LaunchError
    from dstui.jobs.control.start import check as check_launcher

    try:
        if target.plan.cluster.submits:
            return _not_shared(target, run_dir)
        if target.launch.only_here:
            return False
        check_launcher(target.launch)
    except (RenderError, LaunchError):
        return False  # the launch reports it
    from dstui.doctor.examine import format_lines, run_preflight  # not needed for a job of this machine

    results = run_preflight(target)
    for line in format_lines(results):
        remark(line)
    return any(result.verdict == "fail" for result in results)


def _launch(target: Target, findings: list[Finding], args: argparse.Namespace) -> int:
    from dstui.jobs.control.start import LaunchError, start  # not needed for a dry run

    run_dir = Path(args.run_dir) if args.run_dir else None
    with signals() as asked:
        if not args.no_preflight and _not_ready(target, run_dir):
            return refuse("nothing was started: the hosts are not ready (--no-preflight starts anyway)")
        if number := asked():
            return 128 + number
        try:
            folder = start(target, run_dir=run_dir, owner_pid=None if args.detach else os.getpid())
        except LaunchError as error:
            say(str(error))
            return 1
        from dstui.headless.following import follow, say_notices  # imported while the job starts

        if args.detach:
            say_notices(folder)
            tell(str(folder.path))
            return 0
        strict = args.strict and _is_read_noticed(folder, target.plan)
        return follow(folder, as_json=args.json, asked=asked, findings=findings, strict=strict)


def _is_read_noticed(folder: JobFolder, plan: Plan) -> bool:
    """Return whether --strict can tell that no rank reads the configuration. Print why if it cannot."""
    from dstui.base.files import all_read

    if not any(plan.configurations.values()):
        say("--strict: the Plan's deepspeed section is empty, so no rank has to read anything")
    elif all_read(folder.ds_configs) is None:
        say("--strict: the file system of the job folder does not record reads (noatime), so dstui cannot know who reads the configuration")
    else:
        return True
    return False


@contextmanager
def signals() -> Iterator[Callable[[], int | None]]:
    """Turn SIGINT, SIGTERM and SIGHUP into requests to stop the job while it runs. Yield a function that returns the first one."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
