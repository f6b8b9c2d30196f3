"""Step 9: a job while it runs and when it has ended: what it has come to, its ranks, and their logs."""

from __future__ import annotations

import time
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical

from dstui.tui.logs import PROBLEM, LogLine, Merged, OneRank, Search
from dstui.tui.row import BLANK, Row, row
from dstui.tui.store import JobState
from dstui.tui.widgets.logview import LogView
from dstui.tui.widgets.ranks import RankStrip, cells_of
from dstui.tui.widgets.rows import Rows
from dstui.tui.widgets.runhead import head_rows, ladder
from dstui.tui.widgets.why import Why

if TYPE_CHECKING:
    from dstui.plan.finding import Fix
    from dstui.run.folder import JobFolder
    from dstui.run.follow import Follower
    from dstui.run.stragglers import Watch

POLL = 1 / 12
"""Seconds between two looks at the job; what is new is painted at most this often, however fast the logs grow."""
BACKLOG = 4 << 20
"""Bytes of each log that the merged view starts with; a rank's own view shows its whole log."""
NOTICE_SECONDS = 30.0
"""How long a notice stands in the head; it stays in the log."""
FINAL = ("succeeded", "failed", "stopped", "lost")


class Run(Vertical):
    """One job, or the list of jobs where none is looked at."""

    def __init__(self) -> None:
        super().__init__(id="run")
        self.folder: JobFolder | None = None
        self.follower: Follower | None = None
        self.merged = Merged()
        self.rank: int | None = None
        """The rank whose log is shown; None for all."""
        self.notice, self.noticed = "", 0.0
        self.losses: list[float] = []
        self.stopping: float | None = None
        self.silence = 300.0
        self.hangs: Watch
        self._timer: Any = None
        self._told = ""
        self._all_told = False
        """The job's last event was told: there is nothing more to come."""

    def compose(self) -> ComposeResult:
        """The list of jobs; and the four parts of a job."""
        jobs = Rows(id="jobs", classes="pane")
        jobs.label("Jobs", "")
        yield jobs
        head = Rows(id="run-head")
        head.can_focus = False
        parts = (head, RankStrip(), LogView(), Why())
        for part in parts:
            part.display = False
        yield from parts

    # Which job

    def show_jobs(self) -> None:
        """The list of jobs on this machine, newest first."""
        from dstui.run.index import runs

        found = sorted(runs(), key=lambda r: str(r.get("started", "")), reverse=True)
        rows = [job_row(r) for r in found] or [row(("No job yet. Launch one from step 8.", "dim"))]
        self._show_job(False)
        self.query_one(Why).begin(None)
        jobs = self.query_one("#jobs", Rows)
        jobs.show_rows([row(("Enter looks at a job; its terminal need not be this one.", "dim")), BLANK, *rows] if found else rows)
        jobs.focus()

    def _show_job(self, job: bool) -> None:
        self.query_one("#jobs").display = not job
        for part in ("#run-head", "#ranks", "#log"):
            self.query_one(part).display = job

    def attach(self, folder: JobFolder, silence: float = 300.0) -> None:
        """Look at a job, from the beginning of its logs."""
        from dstui.run.follow import Follower
        from dstui.run.stragglers import Watch

        self.detach()
        self.folder, self.follower, self.silence, self.hangs = folder, Follower(folder, BACKLOG), silence, Watch(silence)
        self._told, self._all_told = "", False
        self.merged, self.rank, self.notice, self.losses, self.stopping = Merged(), None, "", [], None
        self._show_job(True)
        self.query_one(Why).begin(folder)
        self.log_view.search = None
        self.show_rank(None)
        self.log_view.focus()
        self._timer = self.set_interval(POLL, self.tick)
        self.tick()

    def detach(self) -> None:
        """Look no longer; the job goes on."""
        if self._timer is not None:
            self._timer.stop()
        if self.follower is not None:
            self.follower.close()
        self._timer = self.follower = self.folder = None

    @property
    def log_view(self) -> LogView:
        """The log."""
        return self.query_one(LogView)

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
        before = self._told
        for event in self.follower.poll():
            self._take(event)
        if news := self.hangs.news(self.follower.ranks, time.time()):
            self._notify(news)
        self._told = self.state
        if self._told != before:
            self.post_message(JobState(self._told))
        self.query_one(Why).look(self.follower, self.hangs.hang)
        view = self.log_view
        if isinstance(view.lines, OneRank):
            view.lines.file.poll()
        if view.search is not None and not view.search.complete and view.search.advance():
            view.refresh()
        view.sync()
        self.draw()
        if self._all_told and self._timer is not None and (not isinstance(view.lines, OneRank) or view.lines.file.complete):
            self._timer.pause()

    def _take(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "Line":
            self.merged.add(LogLine(event.rank, event.text))
        elif kind == "Notice":
            self._notify(event.text)
        elif kind == "Metric" and event.name == "loss" and event.rank == min(self.follower.ranks if self.follower else [0], default=0):
            self.losses.append(event.value)
        elif kind == "RankState":
            status = f", exit status {event.exit_code}" if event.exit_code is not None else ""
            self.merged.add(LogLine(None, f"rank {event.rank} on {event.host}: {event.state}{status}", notice=True))
        elif kind == "Exited":
            self._all_told = True
            self.merged.add(LogLine(None, f"the job has {event.state}, exit status {event.exit_code}", notice=True))

    def _notify(self, text: str) -> None:
        self.notice, self.noticed = text, monotonic()
        self.merged.add(LogLine(None, text, notice=True))

    @property
    def fix(self) -> Fix | None:
        """What the diagnosis would change in the Plan, if anything."""
        return next((why.fix for why in self.query(Why)), None)

    def draw(self) -> None:
        """Header, ranks and the log's frame."""
        if self.follower is None or self.folder is None:
            return
        head = self.query_one("#run-head", Rows)
        recent = self.notice if monotonic() - self.noticed < NOTICE_SECONDS else ""
        note = (ladder(monotonic() - self.stopping) if self.stopping is not None else recent) if self.alive else ""
        rows = head_rows(self.follower, self.folder.path, self.losses, note, head.size.width or 110)
        head.show_rows(rows)
        self.query_one(RankStrip).show(cells_of(self.follower.ranks, time.time(), self.silence), self.rank)
        view = self.log_view
        where = "following" if view.follow else f"▼ {view.unseen:,} new, f follows" if view.unseen else "f follows"
        name = "Log: all ranks" if self.rank is None else f"Log: rank {self.rank}"
        view.label(name, "  ".join(filter(None, (self._search_words(), where))))

    def _search_words(self) -> str:
        search = self.log_view.search
        if search is None:
            return ""
        what = "errors" if search.pattern == PROBLEM else f"/{search.pattern}"
        at, more = self.log_view.at, "" if search.complete else "…"
        return f"{what} {search.place(at)} of {len(search.found):,}{more}" if at is not None else f"{what}: {len(search.found):,}{more}"

    # What the keys do

    def show_rank(self, rank: int | None) -> None:
        """The log of one rank, or of all."""
        if self.folder is None:
            return
        from dstui.run.logfile import LogFile

        self.rank = rank
        view = self.log_view
        if rank is None:
            view.show_lines(self.merged)
        else:
            file = LogFile(self.folder.log(rank, self.follower.attempt if self.follower else 1))
            file.poll()
            view.show_lines(OneRank(rank, file))
        if view.search is not None:
            self.search(view.search.pattern, regex=view.search.pattern == PROBLEM, jump=False)
        if self._timer is not None:
            self._timer.resume()
        self.draw()

    @on(RankStrip.Picked)
    def _picked(self, event: RankStrip.Picked) -> None:
        self.show_rank(None if event.rank == self.rank else event.rank)

    def search(self, pattern: str, *, regex: bool = False, jump: bool = True) -> None:
        """Find a text in the log that is shown; "" ends the search."""
        view = self.log_view
        view.search = Search(pattern, view.lines, regex=regex) if pattern else None
        if view.search is not None:
            view.search.advance(0.1)
            if jump and view.search.found:
                view.go_to(view.search.neighbour(view.reading, -1) or 0)
        view.refresh()
        self.draw()

    def match(self, by: int) -> bool:
        """To the next match of the search. False where nothing matches."""
        view = self.log_view
        found = view.search.neighbour(view.reading, by) if view.search is not None else None
        if found is not None:
            view.go_to(found)
            self.draw()
        return found is not None

    def problem(self, by: int) -> bool:
        """To the next line that speaks of an error. False where none does."""
        view = self.log_view
        if view.search is None or view.search.pattern != PROBLEM:
            view.search = Search(PROBLEM, view.lines, regex=True)
            view.search.advance(0.2)
        return self.match(by)

    def follow(self) -> None:
        """Back to the newest line."""
        self.log_view.follow_end()
        self.draw()


def job_row(status: dict[str, Any]) -> Row:
    """A line of the list of jobs."""
    state = str(status.get("state", "unknown"))
    style = {"succeeded": "ok", "failed": "error", "lost": "error", "stopped": "warning", "running": "accent"}.get(state, "dim")
    glyph = {"succeeded": "✔", "failed": "✖", "lost": "✖", "stopped": "■", "running": "●"}.get(state, "·")
    folder = Path(str(status.get("folder", "")))
    code = f"exit {status['exit_code']}" if status.get("exit_code") is not None else ""
    left = ((f"{glyph} {state:<10}", style), f"{folder.name:<44} ", (code, "dim"))
    return row(*left, right=[(str(folder.parent), "faint")], key=str(folder))
