"""Print a job until it has ended: its lines as text, or its events as JSON."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dstui.base.files import FileProblem, all_read
from dstui.base.output import Ink, coloured, flush, json_text, reader_gone, remark, say, tell
from dstui.diagnosis import Diagnosis, diagnose_job, report, unread_configuration
from dstui.diagnosis.job.notes import with_history
from dstui.jobs.control.stop import stop
from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.events import Event, Exited, HostChange, Line, Metric, Notice, RankState, Started
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import hosts_of_ranks, rank_label
from dstui.jobs.store.records import JobStatus
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.hangs import SILENCE, Watch
from dstui.jobs.watch.summary import summary
from dstui.plan.finding import Finding

NOBODY_READS = "PL001"
"""The finding that nothing hands the configuration to the script."""
POLL = 0.1
"""Seconds between two looks at the logs."""
PALETTE = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI colours of the ranks, used in turn."""
LOSSES_WITHOUT = 3
"""Losses that ranks may print before they read the configuration: an evaluation may come before deepspeed.initialize."""


def say_notices(folder: JobFolder) -> None:
    """Print the notices of a job that was just started and is not followed."""
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
    """Print a job until it has ended and return its exit status. `asked` returns the signal that requests its end, if any came.

    `findings`: those from before the launch, printed as events with --json. The one that nothing hands the configuration to the script is
    printed again at the end, unless a rank has read it.

    `strict`: if ranks train without having read the configuration, stop the job and exit with 1.

    `plain`: print only the lines of ranks and launcher, unchanged, and dstui's messages on standard error.

    The job is also stopped if its reader is gone: the other end of a pipe, or the terminal.
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
    launch = folder.read_launch()
    watch = Watch((launch and launch.silence) or SILENCE)
    early_stop = _EarlyStop(folder, asked, strict=strict, quiet=isinstance(show, _Events))
    if not isinstance(show, _Events):
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
        early_stop.look(events)
        time.sleep(0.0 if events else POLL)
    again = [] if all_read(folder.ds_configs) else [finding for finding in findings if finding.code == NOBODY_READS]
    why = _diagnosis(folder, end.state)
    early_stop.join()
    if strict and not end.exit_code and all_read(folder.ds_configs) is False:
        say("--strict: the job succeeded, but no rank had read the configuration")
        end = replace(end, exit_code=1)
    show.end(end, again, why, follower)
    return end.exit_code


class _EarlyStop:
    """Stops a job once, in a thread: if a signal asks for it, or if with `strict` its ranks train without having read the configuration."""

    def __init__(self, folder: JobFolder, asked: Callable[[], int | None], *, strict: bool, quiet: bool) -> None:
        self.folder, self.asked, self.strict, self.quiet = folder, asked, strict, quiet
        self.losses = 0
        self.thread: threading.Thread | None = None

    def look(self, events: Sequence[Event]) -> None:
        """Start to stop the job if there is a reason by now."""
        self.losses += sum(isinstance(event, Metric) and event.name == "loss" for event in events)
        if self.thread is not None:
            return
        if (number := self.asked()) is not None:
            if not self.quiet:
                say(f"{signal.Signals(number).name}: stopping the job")
            self._start(128 + number)
        elif self.strict and self.losses >= LOSSES_WITHOUT and all_read(self.folder.ds_configs) is False:
            say("--strict: the ranks train, and none has read the configuration: stopping the job")
            self._start(1)

    def _start(self, exit_code: int) -> None:
        self.thread = threading.Thread(target=stop, args=(self.folder, exit_code))
        self.thread.start()

    def join(self) -> None:
        """Wait until the job is stopped, if it was."""
        if self.thread is not None:
            self.thread.join()


def _diagnosis(folder: JobFolder, state: str) -> Diagnosis | None:
    """Return why the job failed or why its success is doubtful; None if its logs cannot be read, which must not hide its end."""
    try:
        return with_history(diagnose_job(folder), folder) if state in ("failed", "lost") else unread_configuration(folder)
    except FileProblem as error:
        say(f"no diagnosis: {error}")
        return None


class _Events:
    """Prints events as JSON, one per line."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice) and not event.text:
            return  # an earlier event had all but the end
        self._emit(event.as_json())
        if isinstance(event, Started):
            self._found(self.findings)

    def end(self, end: Exited, again: Sequence[Finding], why: Diagnosis | None, _follower: Follower) -> None:
        """Print the repeated findings, the diagnosis, and the exit as the last event."""
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
        tell(json_text(facts))


class _Printer:
    """Prints events as text: each line with its rank, in a colour per rank on a terminal."""

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
        """Print the summary, the repeated findings, and the diagnosis."""
        tell(summary(follower))
        for finding in again:
            tell(f"\n{finding.severity} {finding.code}: {finding.message}{finding.instruction}")
        if why is not None:
            tell("\n" + report(why))

    def prefix(self, rank: int | None) -> str:
        """Return `[1]` or `[1 h2]`; a dash for the launcher's own lines."""
        text = rank_label(rank, self.hosts, self.width)
        return Ink(f"\x1b[{PALETTE[rank % len(PALETTE)]}m{text}\x1b[0m") if self.colour and rank is not None else text


class _Lines(_Printer):
    """Prints the lines of ranks and launcher as they would appear without dstui."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Line):  # pdsh and others prefix lines with the host, even for a single host
            tell(event.text.removeprefix("localhost: ") if event.rank is None else event.text)
        else:
            super().__call__(event)

    def end(self, end: Exited, _again: Sequence[Finding], why: Diagnosis | None, _follower: Follower, /) -> None:
        """Print the diagnosis of a failure on standard error."""
        if why is not None and end.exit_code:
            remark(report(why))
