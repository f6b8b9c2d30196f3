"""Step 9: a job while it runs and when it has ended: what it has come to, its ranks, and their logs."""

from __future__ import annotations

import gc
import time
from time import monotonic
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical

from dstui.logs.levels import ALL
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row, row
from dstui.tui.kit.threads import in_thread
from dstui.tui.run.diagnosis_pane import DiagnosisPane
from dstui.tui.run.job_log import JobLog
from dstui.tui.run.rank_cell import cells_of
from dstui.tui.run.rank_strip import RankStrip
from dstui.tui.run.run_head import RunHead, stop_stage
from dstui.tui.session.session import JobState

if TYPE_CHECKING:
    from dstui.plan.finding import Fix
    from dstui.run.jobs.folder import JobFolder
    from dstui.run.jobs.records import JobStatus
    from dstui.run.observe.follow import Follower
    from dstui.run.observe.hangs import Watch
    from dstui.run.observe.usage import Sampler

POLL = 1 / 12
"""Seconds between two looks at the job; what is new is painted at most this often, however fast the logs grow."""
BACKLOG = 4 << 20
"""Bytes of each log whose numbers are told; the log itself is shown whole."""
NOTICE_SECONDS = 30.0
"""How long a notice stands in the head; it stays in the log."""
FINAL = ("succeeded", "failed", "stopped", "lost")


class RunPane(Vertical):
    """One job, or the list of jobs where none is looked at."""

    def __init__(self) -> None:
        super().__init__(id="run")
        self.jobs, self.head, self.ranks = RowList(id="jobs", classes="pane"), RunHead(), RankStrip()
        self.log_view, self.why = JobLog(), DiagnosisPane()
        self._show_job(False)
        self.why.display = False
        self.folder: JobFolder | None = None
        self.follower: Follower | None = None
        self.notice, self.noticed = "", 0.0
        self.sampler: Sampler | None = None
        self.stopping: float | None = None
        self.silence = 300.0
        self.hangs: Watch
        self._timer: Any = None
        self._reported = ""
        self._complete = False
        """The job's last event was told: there is nothing more to come."""

    def compose(self) -> ComposeResult:
        """The list of jobs; and the four parts of a job."""
        self.jobs.label("Jobs", "")
        yield self.jobs
        yield from (self.head, self.ranks, self.log_view, self.why)

    def on_mount(self) -> None:
        """Show what was asked for meanwhile."""
        self.enter()

    def enter(self) -> None:
        """The focus is on the log of the job, or on the list of jobs."""
        if self.folder is None:
            self.show_jobs()
        else:
            self.log_view.focus()

    # Which job

    def show_jobs(self) -> None:
        """The list of jobs on this machine, newest first. A thread looks for them: their folders may lie on a slow disk."""
        self._show_job(False)
        self.why.begin(None)
        if not self.jobs.rows:
            self.jobs.show_rows([row(("Looking for jobs…", "dim"))])
        self.jobs.focus()
        in_thread(self, self._find_jobs)

    def _find_jobs(self) -> None:
        from dstui.run.jobs.index import runs

        self.call_later(self._jobs_found, runs()[::-1])

    def _jobs_found(self, found: list[tuple[JobFolder, JobStatus]]) -> None:
        rows = [job_row(folder, status) for folder, status in found] or [row(("No job yet. Launch one from step 8.", "dim"))]
        self.jobs.show_rows([row(("Enter looks at a job; its terminal need not be this one.", "dim")), BLANK, *rows] if found else rows)

    def _show_job(self, job: bool) -> None:
        self.jobs.display = not job
        self.head.display = self.ranks.display = self.log_view.display = job

    def attach(self, folder: JobFolder, silence: float = 300.0) -> None:
        """Look at a job, from the beginning of its logs."""
        from dstui.run.observe.follow import Follower
        from dstui.run.observe.hangs import Watch
        from dstui.run.observe.usage import Sampler

        self.detach()
        self.folder, self.follower, self.silence, self.hangs = folder, Follower(folder, BACKLOG, lines=False), silence, Watch(silence)
        self._reported, self._complete = "", False
        self.notice, self.stopping = "", None
        self.head.begin()
        self.sampler = Sampler(folder) if self.alive else None
        self._show_job(True)
        self.why.begin(folder)
        self.log_view.attach(folder)
        self.log_view.focus()
        self._timer = self.set_interval(POLL, self.tick)
        self.tick()
        gc.freeze()  # the app is no garbage: looking through all of it, some times a minute, would halt the screen for 80 ms each time

    def detach(self) -> None:
        """Look no longer; the job goes on."""
        if self._timer is not None:
            self._timer.stop()
        if self.follower is not None:
            self.follower.close()
            self.log_view.attach(None)
        if self.sampler is not None:
            self.sampler.close()
        self._timer = self.follower = self.folder = self.sampler = None

    @property
    def state(self) -> str:
        """The job's state in a word; "" where none is looked at."""
        return str(self.follower.state) if self.follower is not None else ""

    @property
    def name_of_job(self) -> str:
        """What the job's folder is called."""
        return self.folder.path.name if self.folder is not None else "no job"

    @property
    def alive(self) -> bool:
        """Whether a job is looked at that has not ended."""
        return self.follower is not None and self.state not in FINAL

    # What happens

    def tick(self) -> None:
        """Take over what happened since the last look, and draw it."""
        if self.follower is None:
            return
        before = self._reported
        for event in self.follower.poll():
            self._take(event)
        if news := self.hangs.news(self.follower.ranks, time.time()):
            self._notify(news)
        self._reported = self.state
        if self._reported != before:
            self.post_message(JobState(self._reported))
        self.why.update(self.follower, self.hangs.hang)
        view = self.log_view
        view.hosts = {number: rank.host for number, rank in self.follower.ranks.items()}
        view.tick(ended=self._complete)
        self.draw()

    def _take(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "Notice":
            self.notice, self.noticed = event.text, monotonic()
        elif kind == "Metric" and event.name == "loss" and event.rank == min(self.follower.ranks if self.follower else [0], default=0):
            self.head.add_loss(event.step, event.value)
        elif kind == "Exited":
            self._complete = True

    def _notify(self, text: str) -> None:
        self.notice, self.noticed = text, monotonic()
        self.log_view.add_notice(time.time(), text)

    @property
    def fix(self) -> Fix | None:
        """What the diagnosis would change in the Plan, if anything."""
        return self.why.fix

    def draw(self) -> None:
        """Header, ranks and the log's frame."""
        if self.follower is None or self.folder is None:
            return
        view = self.log_view
        recent = self.notice if monotonic() - self.noticed < NOTICE_SECONDS else ""
        note = (stop_stage(monotonic() - self.stopping) if self.stopping is not None else recent) if self.alive else ""
        aside = f"{self.name_of_job} {self.follower.foreign}: it is only looked at" if self.follower.foreign else ""
        self.head.show(self.follower, self.folder.path, note or aside, self.sampler)
        usage = self.sampler.latest if self.sampler is not None else {}
        self.ranks.show(cells_of(self.follower.ranks, time.time(), self.silence, usage), view.filter.rank)
        view.label(view.filter.title, view.subtitle)

    # What the keys do

    def choose(self, **changes: Any) -> None:
        """Which lines of the log are shown: see Filter."""
        if self.folder is not None:
            self.log_view.choose(**changes)
            self.draw()

    def show_rank(self, rank: int | None) -> None:
        """The log of one rank, or of all."""
        self.choose(rank=rank, host=None)

    def show_all(self) -> None:
        """Every line of every rank."""
        self.choose(rank=None, host=None, least=ALL)

    @on(RankStrip.RankPicked)
    def _picked(self, event: RankStrip.RankPicked) -> None:
        self.show_rank(None if event.rank == self.log_view.filter.rank else event.rank)

    @property
    def hosts(self) -> list[str]:
        """The hosts of the job, each once."""
        return list(dict.fromkeys(view.host for _, view in sorted(self.follower.ranks.items()))) if self.follower is not None else []

    @property
    def latest(self) -> float:
        """The moment that times are told from: now, or the end of a job that has ended."""
        return time.time() if self.alive or self.follower is None else (self.follower.started or 0.0) + self.follower.duration


def job_row(folder: JobFolder, status: JobStatus) -> Row:
    """A line of the list of jobs."""
    state = status.state
    style = {"succeeded": "ok", "failed": "error", "lost": "error", "stopped": "warning", "running": "accent"}.get(state, "dim")
    glyph = {"succeeded": "✔", "failed": "✖", "lost": "✖", "stopped": "■", "running": "●"}.get(state, "·")
    code = f"exit {status.exit_code}" if status.exit_code is not None else ""
    left = ((f"{glyph} {state:<10}", style), f"{folder.name:<44} ", (code, "dim"))
    place = f"{status.foreign}  {folder.path.parent}" if status.foreign else str(folder.path.parent)
    return row(*left, right=[(place, "faint")], key=str(folder.path))
