"""A job, running or ended: its head, ranks, log and diagnosis; or the list of jobs."""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message

from dstui.jobs.store.events import Event, Exited, Metric, Notice
from dstui.logs.log_folder import FINAL
from dstui.tui.kit.breakpoints import DASHBOARD, ROOMY, WIDE
from dstui.tui.kit.keys import key_of, log_bindings
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row, row
from dstui.tui.kit.tools import in_thread, label, say
from dstui.tui.run.charts import Charts, sparks
from dstui.tui.run.diagnosis_pane import DiagnosisPane
from dstui.tui.run.host_lines import HostLine, host_lines, waited_for
from dstui.tui.run.live_bars import LiveBars
from dstui.tui.run.log_actions import LogActions
from dstui.tui.run.rank_cell import as_stopped, cells_of
from dstui.tui.run.rank_strip import MANY, RankStrip, Selection
from dstui.tui.run.run_head import RunHead, stop_stage
from dstui.tui.run.run_series import RunSeries
from dstui.tui.run.ticks import Ticks
from dstui.tui.run.usage_pane import UsagePane
from dstui.tui.run.watched_job import WatchedJob
from dstui.tui.session.messages import JobStateChanged
from dstui.tui.session.settings import remember, setting

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.store.records import JobStatus

RANKS_EVERY = 1 / 4
"""Seconds between two drawings of more than MANY ranks. Changes by the user are drawn at once."""
CHARTS_EVERY = 1.0
"""Seconds between two drawings of plots and of what the GPUs use."""
QUIET: Mapping[str, Collection[str]] = {"off": FINAL, "failed": ("succeeded", "stopped"), "on": ()}
"""Ends for which the bell does not ring."""
NOTICE_SECONDS = 30.0
"""Seconds for which a notice is in the head, unless it is about a lasting state. It stays in the log."""


class JobView(LogActions):
    """One job, or the list of jobs. Posts JobStateChanged."""

    BINDINGS: ClassVar[list[BindingType]] = [*log_bindings()]

    class KeysChanged(Message):
        """Other keys have an effect now."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs, self.head, self.ranks = RowList(id="jobs", classes="pane"), RunHead(), RankStrip()
        self.bars, self.why = LiveBars(), DiagnosisPane()
        self.charts, self.usage, self.series = Charts(), UsagePane(), RunSeries()
        self.left, self.body = Vertical(id="run-left"), Horizontal(id="run-body")
        self._dashboard = setting("dashboard")
        self._charts_drawn = 0.0
        self._show_parts(job=False)
        self.why.display = False
        self.hosts: list[HostLine] = []
        """Its hosts as last drawn, the worst first."""
        self._notice, self._noticed = "", 0.0
        self._lasting: dict[str, str] = {}
        """Lasting notices by subject, such as the build of an op."""
        self._followed = True
        """True if the log was followed at the last tick."""
        self._ranks_drawn = 0.0
        self.ticks = Ticks(self, self.tick)
        """They rest when the job has ended and nothing is left to do; then its files are only checked for changes."""
        self._reported = ""
        self._complete = False
        """True if the job's last event was reported."""

    def compose(self) -> ComposeResult:
        """Compose the list of jobs, and the parts of a job."""
        label(self.jobs, "Jobs", "")
        yield self.jobs
        yield self.head
        with self.body:
            with self.left:
                yield from (self.ranks, self.usage, self.log_view, self.filter_line, self.search_line, self.bars, self.why)
            yield self.charts

    # Which job

    def enter(self) -> None:
        """Move the focus to the log of the job, or to the list of jobs."""
        if self.job is None:
            self.show_jobs()
        else:
            self.log_view.focus()

    def show_jobs(self) -> None:
        """Show the jobs of this machine, the newest first. A thread looks for them: their folders may be on a slow disk."""
        self._show_parts(job=False)
        self.why.begin(None)
        if not self.jobs.rows:
            self.jobs.show_rows([row(("Looking for jobs…", "dim"))])
        self.jobs.focus()
        in_thread(self, self._find_jobs)

    def _find_jobs(self) -> None:
        from dstui.jobs.store.index import runs

        self.call_later(self._jobs_found, runs()[::-1])

    def _jobs_found(self, found: list[tuple[JobFolder, JobStatus]]) -> None:
        rows = [job_row(folder, status) for folder, status in found] or [
            row(("No job yet. 8 leads to Review, where l launches one.", "dim"))
        ]
        self.jobs.show_rows([row(("Enter opens a job, whichever terminal it was started from.", "dim")), BLANK, *rows] if found else rows)

    def _show_parts(self, *, job: bool) -> None:
        self.jobs.display = not job
        self.head.display = self.body.display = job
        self.filter_line.display = self.search_line.display = False
        self.bars.show({})

    def attach(self, folder: JobFolder, silence: float) -> None:
        """Show a job, from the beginning of its logs."""
        self.detach()
        self.job = WatchedJob(folder, silence)
        self._reported, self._complete, self._notice, self._lasting = "", False, "", {}
        self.head.begin()
        self.series = RunSeries()
        self._show_parts(job=True)
        self.why.begin(folder)
        self.job_log.attach(folder)
        self.log_view.focus()
        self.ticks.begin()
        self.tick()
        gc.freeze()  # the app is not garbage: scanning all of it, some times a minute, would freeze the screen for 80 ms each time

    def detach(self) -> None:
        """Stop showing the job; the job continues."""
        self.ticks.end()
        if self.job is not None:
            self.job.close()
            self.job_log.attach(None)
        self.job = None

    def on_unmount(self) -> None:
        """Let go of the job's files."""
        self.detach()

    # What happens

    def tick(self) -> None:
        """Take over what happened since the last tick, and draw it."""
        if self.job is None:
            return
        stamp, events = self.job.follower.status_stamp, self.job.poll()
        grown = self.job_log.tick(ended=self._complete)
        if self.ticks.rests and not (events or grown or self.job_log.busy or stamp != self.job.follower.status_stamp):
            return
        for event in events:
            self._take(self.job, event)
        if news := self.job.news():
            self._notice, self._noticed = news, monotonic()
            self.job_log.add_notice(time.time(), news)
        if self.job.state != self._reported:
            if self._reported and self.job.state in FINAL and self.job.state not in QUIET[setting("bell")]:
                self.app.bell()
            self._reported = self.job.state
            self.post_message(JobStateChanged(self._reported))
        self.why.update(self.job.follower, self.job.hang)
        self.job_log.show_hosts({number: rank.host for number, rank in self.job.follower.ranks.items()})
        self.log_view.stamps.started = self.job.follower.started
        self._draw_log()
        if self.log_view.follow != self._followed:
            self._followed = self.log_view.follow
            self.post_message(self.KeysChanged())
        if len(self.job.follower.ranks) <= MANY or monotonic() - self._ranks_drawn >= RANKS_EVERY:
            self._draw_ranks()
        if monotonic() - self._charts_drawn >= CHARTS_EVERY:
            self._draw_charts()
        self.ticks.settle(busy=not self._complete or self.job_log.busy or self.job.sampler.active or self.ticks.rests)

    def _take(self, job: WatchedJob, event: Event) -> None:
        match event:
            case Notice(text=text, about=about, lasts=lasts):
                over = self._lasting.pop(about, "")
                self._lasting |= {about: text} if lasts else {}
                if text or over == self._notice:
                    self._notice, self._noticed = text, monotonic()
            case Metric(name=name, rank=rank, step=step, value=value):
                self.series.add(event)
                if name == "loss" and rank == min(job.follower.ranks, default=0):
                    self.head.add_loss(step, value)
            case Exited():
                self._complete = True

    def draw(self) -> None:
        """Draw head, ranks, plots and the log's frame."""
        self.ticks.wake()
        self._draw_charts()
        self._draw_ranks()
        self._draw_log()

    def _draw_ranks(self) -> None:
        if self.job is None:
            return
        self._ranks_drawn, now = monotonic(), time.time()
        hosts = self.job.follower.hosts
        unseen = [name for name, host in hosts.items() if host.state == "unreachable"] if self.job.alive else self.job.hosts
        cells = cells_of(self.job.follower.ranks, now, self.job.silence, self.job.usage, unseen)
        if self.job.follower.state == "stopped":
            cells = as_stopped(cells)
        self.hosts = host_lines(cells, hosts, now, self.job.usage)
        at = Selection(self.job_log.filter.rank, self.job_log.filter.host)
        self.ranks.show(cells, self.hosts, at)
        self.bars.show(at.among(self.job.follower.ranks) if self.job.alive else {})

    def _draw_charts(self) -> None:
        """Draw plots and GPU usage beside the log on a wide screen, sparklines under the head on a narrower one."""
        if self.job is None:
            return
        self._charts_drawn, (width, height) = monotonic(), self.app.size
        wide = self._dashboard and width >= DASHBOARD
        self.usage.display = wide
        self.charts.display = wide and not (self._complete and self.series.is_bare)
        own = tuple(self.job.follower.measure.own_names)
        self.head.sparks = None
        if wide:
            self.charts.show(self.series, own, self.job.history)
            self.usage.show(self.job.history)
        elif self._dashboard and width >= WIDE and height >= ROOMY:
            self.head.sparks = sparks(self.series.ordered(own), width - self.head.MARGIN)

    def action_dashboard(self) -> None:
        """Toggle plots and GPUs beside the log; the choice is remembered."""
        self._dashboard = not self._dashboard
        in_thread(self, partial(remember, "dashboard", self._dashboard))
        self.draw()
        if self.app.size.width < WIDE:
            say(self.app, f"The dashboard is {'on' if self._dashboard else 'off'}: it shows from {WIDE} columns on.")

    def _draw_log(self) -> None:
        if self.job is None:
            return
        self.head.show(self.job.follower, self.job.folder.path, self._note(self.job), self.job.sampler, self.job.expected)
        self.job_log.draw()

    def _note(self, job: WatchedJob) -> str:
        """Return the text that replaces the job's folder in the head."""
        if job.stopping is not None:
            return stop_stage(job.stopping)
        if job.follower.notices.unheard:
            return job.follower.notices.unheard
        if job.alive and self._notice and monotonic() - self._noticed < NOTICE_SECONDS:
            return self._notice
        if job.alive and self._lasting:
            return next(reversed(self._lasting.values()))
        if job.alive and len(self.hosts) > 1 and (late := waited_for(self.hosts)):
            return late
        return f"{job.name} {job.follower.notices.foreign}: it is read-only here" if job.follower.notices.foreign else ""

    # Which lines

    def show_host(self, host: str | None) -> None:
        """Show one host's ranks and their log, or those of all hosts."""
        self.choose(rank=None, host=host)

    def show_rank(self, rank: int | None) -> None:
        """Show the log of one rank, or of all."""
        self.choose(rank=rank, host=None)

    def back(self) -> None:
        """End the search, then remove the filter, then show all ranks and hosts again; then say where one can go from here."""
        if self.log_view.search is not None:
            self.job_log.find("")
        elif self.job_log.filter.query.text:
            self.apply_filter("")
        elif self.job_log.filter.rank is not None or self.job_log.filter.host is not None:
            self.show_rank(None)
        else:
            ways = f"{key_of('previous-step')} leads to the steps, {key_of('jobs')} to other runs"
            say(self.app, f"{ways}; {key_of('leave')} leaves dstui{', and the job goes on' if self.job and self.job.alive else ''}.")

    def take_settings(self) -> None:
        """Draw the job with the current settings."""
        self._dashboard, self.log_view.wrapping.on = setting("dashboard"), setting("wrap")
        self.log_view.stamps.kind = setting("timestamps")
        self.log_view.sync()
        self.log_view.refresh()
        self.draw()

    @on(RankStrip.RankPicked)
    def _picked(self, event: RankStrip.RankPicked) -> None:
        self.show_rank(None if event.rank == self.job_log.filter.rank else event.rank)

    @on(RankStrip.HostPicked)
    def _host_picked(self, event: RankStrip.HostPicked) -> None:
        self.show_host(None if event.host == self.job_log.filter.host else event.host)


def job_row(folder: JobFolder, status: JobStatus) -> Row:
    """Return a line of the list of jobs."""
    from dstui.jobs.store.records import STATE_GLYPHS

    state = status.state
    style = {"succeeded": "ok", "failed": "error", "lost": "error", "stopped": "warning", "running": "accent"}.get(state, "dim")
    code = f"exit {status.exit_code}" if status.exit_code is not None else ""
    left = ((f"{STATE_GLYPHS.get(state, '·')} {state:<10}", style), f"{folder.name:<44} ", (code, "dim"))
    place = f"{status.foreign}  {folder.path.parent}" if status.foreign else str(folder.path.parent)
    return row(*left, right=[(place, "faint")], key=str(folder.path))
