"""Follow a job by reading its folder: events for a display, and an up-to-date summary.

Nothing here blocks: `poll` reads a bounded number of bytes and returns. The folder may be anybody's, on any disk, of a running or ended
job. The supervisor and its followers share only files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from dstui.base.text import sanitise
from dstui.jobs.engine.now import read_now
from dstui.jobs.metrics.engine_metrics import EngineMetrics
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.metrics.progress import Pace
from dstui.jobs.store.events import Event, Exited, Line, Notice, RankState, Started
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import HostStatus, JobStatus, RankStatus
from dstui.jobs.store.status import current_status, ranks_of
from dstui.jobs.watch.engine_notices import EngineNotices
from dstui.jobs.watch.job_notices import JobNotices
from dstui.logs.log_folder import FINAL
from dstui.logs.tail import Tail, allow_files

BUDGET = 1 << 20
"""Bytes of logs that one poll reads in total."""
CHUNK = 1 << 16
"""Bytes of one log that are read before the next log's turn."""
SPELL = 0.015
"""Approximate seconds of work per poll, so that a screen stays responsive under any amount of output."""
REFRESH = 1.0
"""Seconds between two checks of the supervisor."""
FILES_ASIDE, FILES_OF_A_RANK = 256, 2
"""Open files that a follower's process needs: its own, and two per rank, here and in a view of the log."""
STEADY = 20
"""Steps of every rank after which a rank may be reported as a straggler."""
QUIET = 3.0
"""Seconds without output after which a rank's phase is read, and between two such reads."""
HOOKED = 15.0
"""Seconds after all ranks have started within which each hook writes its first line, since it does so before the script is read."""
BAR_GLANCE = 1.0
"""Seconds between two reads of the step in a progress bar."""
BAR_EVERY = 10.0
"""Seconds after which a progress bar is printed as a line: a sign of life for displays that show only lines."""


class Follower:
    """Yields the events of one job in order: a rank's lines before its end, and everything before the job's end."""

    def __init__(
        self,
        folder: JobFolder,
        backlog: int | None = None,
        *,
        lines: bool = True,
        status_of: Callable[[JobFolder], JobStatus | None] = current_status,
    ) -> None:
        """Prepare to follow. `backlog`: bytes of each existing log to report; None means all.

        `lines`: report lines, not only the metrics in them; that costs a tenth. `status_of`: the source of the status, called once a
        second. With `control.take_over` the follower also supervises the job.
        """
        self.folder = folder
        self._status_of = status_of
        self.measure = Measure.of(folder)
        self.ranks: dict[int, RankView] = {}
        self.state = "starting"
        self.exit_code: int | None = None
        self.attempt = 1
        self._backlog, self._lines = backlog, lines
        self._wanted = None if lines else self.measure.wanted
        self._status: JobStatus | None = None
        self._hosts: dict[str, HostStatus] = {}
        self._unwritten: JobStatus | None = None
        self.status_stamp: tuple[int, int] | None = None
        """Of status.json as it was last read: inode and time."""
        self._refreshed = 0.0
        self._tails: dict[int | None, Tail] = {None: Tail(folder.launcher_log, backlog)}
        self.notices = JobNotices(folder)
        self._engines: dict[int, EngineMetrics] = {}
        self._engine_notices = EngineNotices(folder)
        self._engine_turn = 0
        self._hooks_checked = False
        self._complete_since = 0.0
        """The time at which all ranks were first seen to have started, by time.monotonic()."""
        self._phases_read: dict[int, float] = {}
        self.warnings: list[str] = []
        """Warnings from the engines, shown when they are found and again at the end."""
        self._turn = 0
        self._pace = Pace()
        self._start_reported = self._end_reported = False
        self._read_status()

    @property
    def started(self) -> float | None:
        """The start of the job, seconds since the epoch."""
        return self._status.started if self._status else None

    @property
    def duration(self) -> float:
        """Seconds from the start to the end, or to now."""
        ended = (self._status.ended if self._status else None) or time.time()
        return max(ended - (self.started or ended), 0.0)

    @property
    def hosts(self) -> dict[str, HostStatus]:
        """The status of each host by name, safe to show; empty for a job that runs only on this machine."""
        return self._hosts

    @property
    def latest(self) -> dict[str, float]:
        """The newest value of each metric, of the first rank that has it."""
        found: dict[str, float] = {}
        for _, view in sorted(self.ranks.items()):
            for name, value in view.metrics.items():
                found.setdefault(name, value)
        return found

    @property
    def rates(self) -> dict[str, float]:
        """The latest speeds: tokens/s, samples/s, steps/s."""
        return {name: value for name, value in self.latest.items() if name.endswith("/s")}

    @property
    def progress(self) -> tuple[int, int] | None:
        """Steps done and total steps, of the first rank that has both. A script may take more steps than it named."""
        counts = ((view.step, view.steps and view.steps // view.unit) for _, view in sorted(self.ranks.items()))
        return next(((done, total) for done, total in counts if done is not None and total), None)

    @property
    def remaining(self) -> float | None:
        """Seconds until the last step, at the pace of the last minute; None if unknown."""
        return None if self.state in FINAL or not self.progress else self._pace.remaining(*self.progress)

    def poll(self, budget: int = BUDGET) -> list[Event]:
        """Return new events. An `Exited` is always the last one."""
        if self._end_reported:
            self._read_status()  # a host that was unreachable at the end may have answered since
            return []
        events: list[Event] = []
        if not self._start_reported and self._status:
            self._start_reported = True
            events.append(Started(str(self.folder.path), self.started or time.time()))
        self._refresh()
        began = self._read_status()
        events += [RankState(n, self.ranks[n].host, "started", None) for n in began]
        events += self.notices.read(self._status, self.attempt)
        events += self._read_engines()
        read_out = self._read_logs(events, budget)
        events += self._ended_ranks(read_out)
        events += [Notice(text) for text in self.measure.notices()]
        if self.progress:
            self._pace.note(self.progress[0])
        if self.state in FINAL and not events and len(read_out) == len(self._tails):
            events += self._end()
        return events

    def close(self) -> None:
        """Close all files."""
        self.notices.close()
        for tail in self._tails.values():
            tail.close()
        for engine in self._engines.values():
            engine.close()

    def _refresh(self) -> None:
        """Update the status from time to time."""
        now = time.monotonic()
        if self.state not in FINAL and now - self._refreshed >= REFRESH:
            self._refreshed = now
            status = self._status_of(self.folder)
            self.notices.update(status)
            if status and status.final and not self.folder.has_ended:
                self._unwritten = status  # the disk is full, or the folder belongs to another user

    def _read_status(self) -> list[int]:
        """Read status.json if it has changed. Return the ranks that have started since."""
        try:
            found = self.folder.status_file.stat()
        except OSError:
            return []
        if self._unwritten:
            return self._take_status(self._unwritten)
        stamp = (found.st_ino, found.st_mtime_ns)  # the file system's clock may be coarser than the rate of writes
        if stamp == self.status_stamp:
            return []
        status = self.folder.read_status()
        if status is None or not self._change_attempt(status.attempt):
            return []
        self.status_stamp = stamp
        return self._take_status(status)

    def _take_status(self, status: JobStatus) -> list[int]:
        """Apply a status. Return the ranks that have started since."""
        self._status = status
        self._hosts = {
            sanitise(name): replace(host, problem=host.problem and sanitise(host.problem)) for name, host in status.hosts.items()
        }
        self.state, self.exit_code = status.state, status.exit_code
        allow_files(FILES_ASIDE + FILES_OF_A_RANK * len(status.ranks))
        began = [number for number, rank in status.ranks.items() if self._take(number, rank)]
        for number, rank in status.ranks.items():
            self.ranks[number].killed_after = rank.killed_after if status.state != "stopped" else None
        return began

    def _change_attempt(self, attempt: int) -> bool:
        """Move on to a further attempt after everything of the last one was reported. Return False until then."""
        if attempt != self.attempt and self._status:
            ended = ranks_of(self.folder, self._status)  # the new status does not contain these any more
            self._status = replace(self._status, ranks=ended.statuses())
            if any(view.state == "started" for view in self.ranks.values()):
                return False
            for number in self.ranks:
                if number in self._tails:
                    self._tails.pop(number).close()
                    self._engines.pop(number).close()
            self._engine_notices = EngineNotices(self.folder)
            self.ranks = {}
        self.attempt = attempt
        return True

    def _take(self, number: int, rank: RankStatus) -> bool:
        """Apply the status of a rank. Return whether it has started since. Its end is reported after its lines."""
        host = sanitise(rank.host)
        view = self.ranks.setdefault(number, RankView(host))
        view.host = host
        if view.state != "waiting" or rank.state == "waiting":
            return False
        view.state = "started"
        self._tails[number] = Tail(self.folder.log(number, self.attempt), self._backlog)
        self._engines[number] = EngineMetrics(self.folder, number, self.attempt)
        return True

    def _read_engines(self) -> list[Event]:
        """Return the events from the engines' reports. They come before log lines, in which the same metrics are then skipped."""
        events: list[Event] = []
        deadline, ranks = time.monotonic() + SPELL / 2, sorted(self._engines)
        for _ in ranks:
            rank = ranks[self._engine_turn % len(ranks)]
            self._engine_turn += 1
            events += self._engine_events(rank)
            if time.monotonic() >= deadline:
                break
        notices = self._engine_notices.unobserved(self._without_hook())
        notices += self._engine_notices.due([rank for rank, view in self.ranks.items() if view.state == "started"])
        if all(view.engine_step is not None and view.engine_step >= STEADY for view in self.ranks.values()):
            notices += self._engine_notices.straggler({n: v.own_seconds for n, v in self.ranks.items() if v.own_seconds is not None})
        self.warnings += [notice.text for notice in notices]
        return [*events, *notices]

    def _without_hook(self) -> list[int]:
        """Return ranks that run for a while without any output of their hook, though the launch asked for one. Checked once."""
        if self._hooks_checked or self.state != "running":
            return []
        living = [rank for rank, view in self.ranks.items() if view.state == "started"]
        if not living or len(living) < len(self.ranks):
            return []
        self._complete_since = self._complete_since or time.monotonic()
        if time.monotonic() - self._complete_since < HOOKED:
            return []
        self._hooks_checked = True
        launch = self.folder.read_launch()
        if launch is None or launch.observe == "off":
            return []
        return [rank for rank in living if not self.folder.engine(rank, self.attempt).exists()]

    def _engine_events(self, rank: int) -> list[Event]:
        engine, view = self._engines[rank], self.ranks[rank]
        events: list[Event] = [*engine.read(view)]
        if view.last_sign is None or time.time() - view.last_sign < QUIET:
            view.now = None
        elif time.monotonic() - self._phases_read.get(rank, float("-inf")) >= QUIET:
            self._phases_read[rank] = time.monotonic()
            view.now = read_now(self.folder.engine(rank, self.attempt, "json"))
        reports, engine.reports = engine.reports, []
        for notice in (notice for report in reports for notice in self._engine_notices.take(rank, report)):
            self.warnings.append(notice.text)
            events.append(notice)
        return events

    def _read_logs(self, events: list[Event], budget: int) -> set[int | None]:
        """Read lines and metrics of the logs, a piece of each in turn. Return the logs that are read completely."""
        deadline = time.monotonic() + SPELL
        logs = list(self._tails.items())
        chunk = min(CHUNK, budget)
        read_out: set[int | None] = set()
        while len(read_out) < len(logs) and budget > 0 and time.monotonic() < deadline:
            rank, tail = logs[self._turn % len(logs)]
            self._turn += 1
            lines = tail.read(chunk, self._wanted)
            budget -= tail.taken
            if tail.taken < chunk:
                read_out.add(rank)
            for place, line in enumerate(lines):
                if self._lines:
                    events.append(Line(rank, line))
                if rank is not None:
                    events += self.measure(self.ranks[rank], rank, line, tail.bars.get(place, ""))
            if rank is not None:
                events += self._note_life(rank, tail)
        return read_out

    def _emit(self, rank: int | None, line: str) -> list[Event]:
        return [Line(rank, line)] if self._lines else []

    def _note_life(self, rank: int, tail: Tail) -> list[Event]:
        view = self.ranks[rank]
        view.last_line_at, view.live, view.live_is_bar = tail.modified, tail.live, tail.is_bar
        now = time.monotonic()
        if not tail.is_bar or not view.live:
            return []
        if now - view.bar_measured >= BAR_GLANCE:
            view.bar_measured = now
            self.measure.record_bar(view, view.live)
        if now - view.bar_reported < BAR_EVERY:
            return []
        view.bar_reported = now
        return [*self._emit(rank, view.live), *self.measure(view, rank, view.live)]

    def _ended_ranks(self, read_out: set[int | None]) -> list[Event]:
        """Return the end events of ranks whose last line was reported."""
        events: list[Event] = []
        for number, rank in self._status.ranks.items() if self._status else ():
            view = self.ranks[number]
            if number in read_out and view.state == "started" and rank.state in ("ended", "lost"):
                while more := self._engine_events(number):
                    events += more
                view.state, view.exit_code = rank.state, rank.exit_code
                for line in self._tails[number].flush():
                    events += [*self._emit(number, line), *self.measure(view, number, line)]
                events.append(RankState(number, view.host, view.state, view.exit_code, view.killed_after))
        return events

    def _end(self) -> list[Event]:
        self._end_reported = True
        code = self.exit_code if self.exit_code is not None else 1
        return [*(reported for line in self._tails[None].flush() for reported in self._emit(None, line)), Exited(code, self.state)]
