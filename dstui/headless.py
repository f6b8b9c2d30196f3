"""`dstui --headless PLAN`: check, launch, stream every rank's lines, and end with the job's own exit status.

Standard output belongs to the ranks (or, with --json, to the events); what dstui has to say goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import dstui
from dstui.assess import assess
from dstui.base.files import FileProblem, write_atomic
from dstui.base.output import Ink, coloured, flush, reader_gone, refuse, remark, say, tell
from dstui.diagnosis import Diagnosis, diagnose_job, report, unread_configuration
from dstui.documents.open import open_document
from dstui.documents.plan_files import read_pool
from dstui.jobs.control.start import LaunchError, start
from dstui.jobs.control.stop import stop
from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.access_time import all_read
from dstui.jobs.store.events import Event, Exited, HostChange, Line, Metric, Notice, RankState, Started
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder
from dstui.jobs.store.ranks import hosts_of_ranks, rank_label
from dstui.jobs.store.records import JobStatus
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.hangs import SILENCE, Watch
from dstui.jobs.watch.summary import summary
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, PlanError
from dstui.plan.finding import Finding
from dstui.plan.holes import describe_open_holes, fill_holes, find_holes, unescape_holes
from dstui.render.artifacts import artifacts, ds_configs
from dstui.render.config_files import PLACEHOLDER, config_name, with_paths
from dstui.render.launch import RenderError
from dstui.render.target import Target
from dstui.surroundings import gather

ENV_FILES = "PL051"
"""The finding that tells which .deepspeed_env reaches the ranks: a launch says so, though nothing is wrong with it."""
NOBODY_READS = "PL001"
"""The check that finds that nothing hands the configuration to the script."""
LOSSES_WITHOUT = 3
"""Losses that ranks may tell before the configuration is read: a first evaluation may come before deepspeed.initialize."""
POLL = 0.1
"""Seconds between two looks at the logs."""
PALETTE = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""Colours of ranks on a terminal (ANSI), one after another."""


def run(args: argparse.Namespace) -> int:
    """The command; its exit status."""
    if not args.file:
        return refuse("--headless takes a Plan: dstui --headless PLAN (`quickstart` is one that comes with dstui)")
    if args.strict and args.detach:
        return refuse("--strict does not go with --detach: nobody would watch whether a rank reads the configuration")
    if args.machine and not args.dry_run:
        return refuse("--headless takes --machine only together with --dry-run: a job runs on this machine, not on a recorded one")
    try:
        sets = [*args.set, "run.observe=off"] if args.no_observe else args.set
        opened = open_document(args.file, sets, args.script)
        plan = opened.plan if args.dry_run else fill_holes(opened.plan, os.environ)
        read_pool(plan)  # before the machine, which takes longer
        target, facts = gather(plan, look_at_machine(args.machine, plan), launches=True)
    except (FileProblem, PlanError) as error:
        return refuse(str(error))
    findings = assess(target, facts).findings
    for note in opened.notes:
        say(note)
    say_findings(plan, opened.findings, False)
    say_findings(plan, findings, opened.made)
    if any(finding.severity == "error" for finding in (*opened.findings, *findings)):
        return refuse("nothing was started: fix the errors above")
    if args.dry_run:
        return _show(target)
    if still_open := find_holes(plan):
        return refuse(describe_open_holes(still_open))
    if plan.job.command:
        return _run_command(plan, args)
    return _launch(target, [finding for finding in findings if finding.severity != "info"], args)


def look_at_machine(path: str | None, plan: Plan) -> Machine:
    """This machine, or the recorded one in a file."""
    if path:
        from dstui.machine.recorded import read_machine

        return read_machine(Path(path))
    from dstui.check.reference import ask_float_types
    from dstui.machine.probe import probe

    return ask_float_types(plan, probe())


def say_findings(plan: Plan, findings: Sequence[Finding], made: bool) -> None:
    """Print what stands in the way of a launch. `made`: of another file, whose lines are not the Plan's."""
    for finding in findings:
        if finding.severity != "info" or finding.code == ENV_FILES:
            where = f"{plan.source}:{finding.line}" if finding.line and not made else plan.source
            named = " ".join(filter(None, (finding.severity, finding.code, finding.path)))
            remark(f"{where}: {named}: {finding.message}{_to_do(finding)}")


def _to_do(finding: Finding) -> str:
    return f"\n    do: {finding.fix.text}" if finding.fix else ""


def _run_command(plan: Plan, args: argparse.Namespace) -> int:
    """Run a command that starts its own ranks as `dstui run` does: its launches become jobs. Returns only where it cannot be run."""
    if args.detach or args.json or args.run_dir or args.strict:
        return refuse("--detach, --json, --run-dir and --strict do not go with job.command: its launches get job folders of their own")
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
        os.chdir(plan.place(unescape_holes(plan.job.workdir)))
    except OSError as error:
        return refuse(f"job.workdir: {error.strerror}: {error.filename}")
    environment = {**os.environ, **{name: unescape_holes(value) for name, value in plan.cluster.env.items()}}
    os.execve(sys.executable, [sys.executable, "-I", "-c", program, "run", "--", *words], environment)


def _write_configs(plan: Plan) -> str:
    """Write the configurations that a command names, and return the path of ds_config.json: its launches copy them into job folders."""
    folder = Path.cwd() / RUNS_FOLDER / f"config-{re.sub(r'[^A-Za-z0-9_-]', '_', plan.name or '')[:80]}"
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in ds_configs(plan):
        write_atomic(folder / artifact.name, artifact.text, replace=True)
    return str(folder / config_name(""))


def _show(target: Target) -> int:
    try:
        files = artifacts(target)
    except RenderError as error:
        return refuse(str(error))
    for artifact in files:
        tell(f"# {artifact.name}: {artifact.why}\n{artifact.text}")
    remark("Nothing was started (--dry-run).")
    return 0


def _not_ready(target: Target) -> bool:
    """Whether a host is not ready for this job; says what is wrong, and what to do. Nothing is looked at for a job of this machine."""
    from dstui.jobs.control.start import check as check_launcher

    try:
        if target.launch.only_here:
            return False
        check_launcher(target.launch)
    except (RenderError, LaunchError):
        return False  # the launch says it
    from dstui.doctor.preflight import format_lines, run_preflight  # which no job of this machine needs

    results = run_preflight(target)
    for line in format_lines(results):
        remark(line)
    return any(result.verdict == "fail" for result in results)


def _launch(target: Target, findings: list[Finding], args: argparse.Namespace) -> int:
    run_dir = Path(args.run_dir) if args.run_dir else None
    with signals() as asked:
        if not args.no_preflight and _not_ready(target):
            return refuse("nothing was started: the hosts are not ready (--no-preflight starts all the same)")
        if number := asked():
            return 128 + number
        try:
            folder = start(target, run_dir=run_dir, owner_pid=None if args.detach else os.getpid())
        except LaunchError as error:
            say(str(error))
            return 1
        if args.detach:
            _say_notices(folder)
            tell(str(folder.path))
            return 0
        strict = args.strict and _is_read_noticed(folder, target.plan)
        return follow(folder, as_json=args.json, asked=asked, findings=findings, strict=strict)


def _is_read_noticed(folder: JobFolder, plan: Plan) -> bool:
    """Return whether --strict can tell that no rank reads the configuration; say why where it cannot."""
    if not any(plan.configurations.values()):
        say("--strict: the Plan's deepspeed section is empty, so there is nothing that a rank has to read")
    elif all_read(folder.ds_configs) is None:
        say("--strict: the file system of the job folder does not note reads (noatime), so nobody can tell who reads the configuration")
    else:
        return True
    return False


def _say_notices(folder: JobFolder) -> None:
    """What there is to say of a job that has just been started, and that nobody follows."""
    follower = Follower(folder, lines=False)
    for event in follower.poll():
        if isinstance(event, Notice) and event.text:
            say(event.text)
    follower.close()


def follow(  # noqa: PLR0913 - all but the first are named
    folder: JobFolder,
    *,
    as_json: bool = False,
    asked: Callable[[], int | None] = lambda: None,
    findings: Sequence[Finding] = (),
    plain: bool = False,
    strict: bool = False,
) -> int:
    """Print what a job says until it has ended; its exit status. `asked` gives the signal that asks for its end, if any came.

    `findings`: what was found before the launch, as events where these are asked for; that nobody hands the configuration to the script
    is said again at the end, unless somebody has read it.

    `strict`: stop a job whose ranks train without having read the configuration, and end it with 1.

    `plain`: only the lines of ranks and launcher, as they are; what dstui has to say goes to standard error.

    The job ends too where nobody is left to print for: the reader of a pipe, or the terminal.
    """
    try:
        show = _Events(findings) if as_json else _Lines() if plain else _Printer(folder.read_status())
        return _follow(folder, show, asked, findings, strict=strict)
    except OSError as error:
        if number := reader_gone(error):
            stop(folder, 128 + number)
        raise


def _follow(
    folder: JobFolder, show: _Events | _Printer, asked: Callable[[], int | None], findings: Sequence[Finding], *, strict: bool
) -> int:
    follower = Follower(folder, status_of=take_over)
    as_json = isinstance(show, _Events)
    launch = folder.read_launch()
    watch = Watch((launch and launch.silence) or SILENCE)
    stopping: threading.Thread | None = None
    losses = 0
    if not as_json:
        say(str(folder.path))
    while True:
        events = follower.poll()
        end = next((event for event in events if isinstance(event, Exited)), None)
        if end is None and (news := watch.news(follower.ranks, time.time())):
            events.append(Notice(news))
        for event in events:
            if event is not end:
                show(event)
        flush()
        if end is not None:
            break
        losses += sum(isinstance(event, Metric) and event.name == "loss" for event in events)
        number = asked()
        unread = strict and losses >= LOSSES_WITHOUT and all_read(folder.ds_configs) is False
        if (number is not None or unread) and stopping is None:
            if number is None:
                say("--strict: the ranks train, and none has read the configuration: stopping the job")
            elif not as_json:
                say(f"{signal.Signals(number).name}: stopping the job")
            stopping = threading.Thread(target=stop, args=(folder, 1 if number is None else 128 + number))
            stopping.start()
        time.sleep(0.0 if events else POLL)
    again = [] if all_read(folder.ds_configs) else [finding for finding in findings if finding.code == NOBODY_READS]
    why = _diagnosis(folder, end.state)
    if stopping is not None:
        stopping.join()
    if strict and not end.exit_code and all_read(folder.ds_configs) is False:
        say("--strict: the job ended well, and no rank had read the configuration")
        end = replace(end, exit_code=1)
    show.end(end, again, why, follower)
    return end.exit_code


def _diagnosis(folder: JobFolder, state: str) -> Diagnosis | None:
    """Why the job failed, or why its success is none; None where its logs cannot be read, which must not hide how it ended."""
    try:
        return diagnose_job(folder) if state in ("failed", "lost") else unread_configuration(folder)
    except FileProblem as error:
        say(f"no diagnosis: {error}")
        return None


class _Events:
    """Events as JSON, one a line."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice) and not event.text:
            return  # only the end of what an earlier one told
        self._emit(event.as_json())
        if isinstance(event, Started):
            self._found(self.findings)

    def end(self, end: Exited, again: Sequence[Finding], why: Diagnosis | None, _follower: Follower) -> None:
        """What is said again, the diagnosis, and the exit, which is the last."""
        self._found(again)
        if why is not None:
            self._emit({"event": "diagnosis", **{name: fact for name, fact in why.as_json().items() if name != "version"}})
        self._emit(end.as_json())
        flush()

    def _found(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self._emit({"event": "finding", **finding.as_json()})

    @staticmethod
    def _emit(facts: Mapping[str, Any]) -> None:
        tell(json.dumps(facts, ensure_ascii=False))


class _Printer:
    """Events as text: lines with their rank before them, in a colour per rank on a terminal."""

    def __init__(self, status: JobStatus | None = None) -> None:
        self.hosts = hosts_of_ranks(status)
        self.width = len(str(max(len(status.ranks) - 1, 0))) if status is not None else 1
        self.colour = coloured()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Line):
            tell(self.prefix(event.rank), " ", event.text)
        elif isinstance(event, (Notice, HostChange)) and event.text:
            say(event.text)
        elif isinstance(event, RankState) and event.exit_code:
            cause = "" if event.killed_after is None else f": it was killed after rank {event.killed_after} had failed"
            say(f"rank {event.rank} on {event.host} ended with {event.exit_code}{cause}")

    def end(self, end: Exited, again: Sequence[Finding], why: Diagnosis | None, follower: Follower, /) -> None:  # noqa: ARG002
        """The summary, what is said again, and the diagnosis."""
        tell(summary(follower))
        for finding in again:
            tell(f"\n{finding.severity} {finding.code}: {finding.message}{_to_do(finding)}")
        if why is not None:
            tell("\n" + report(why))

    def prefix(self, rank: int | None) -> str:
        """`[1]` or `[1 h2]`; the launcher's own lines have a dash."""
        text = rank_label(rank, self.hosts, self.width)
        return Ink(f"\x1b[{PALETTE[rank % len(PALETTE)]}m{text}\x1b[0m") if self.colour and rank is not None else text


class _Lines(_Printer):
    """The lines of ranks and launcher, as they would stand on the terminal without dstui."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Line):  # a launcher's own lines have the host before them, also where there is only this one
            tell(event.text.removeprefix("localhost: ") if event.rank is None else event.text)
        else:
            super().__call__(event)

    def end(self, end: Exited, _again: Sequence[Finding], why: Diagnosis | None, _follower: Follower, /) -> None:
        """The diagnosis of a failure, on standard error."""
        if why is not None and end.exit_code:
            remark(report(why))


@contextmanager
def signals() -> Iterator[Callable[[], int | None]]:
    """While the job runs, SIGINT, SIGTERM and SIGHUP are requests to stop it; the first that came is what it ends with."""
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
