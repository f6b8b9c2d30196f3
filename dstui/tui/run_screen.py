"""The mode for watching jobs: the list of them, or one job with its ranks, log and diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from dstui.jobs.store.folder import JobFolder
from dstui.logs.log_rows import LogRows
from dstui.tui.flows.launching import Launching
from dstui.tui.flows.reporting import Explaining, LogPrompts, Plotting, Reporting, rank_problem
from dstui.tui.forms.steps.step import REVIEW, RUN
from dstui.tui.kit.keys import RUN as ON_RUN
from dstui.tui.kit.keys import bindings, key_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.tools import copy, say
from dstui.tui.main_screen import Go, MainScreen
from dstui.tui.run.diagnosis_pane import WHOLE
from dstui.tui.run.job_view import JobView
from dstui.tui.run.run_head import JobTitle
from dstui.tui.run.watched_job import WatchedJob
from dstui.tui.session.messages import JobStateChanged
from dstui.tui.session.session import Session

JOB_ACTIONS = (
    "rank",
    "all_ranks",
    "metrics",
    "dashboard",
    "wrap",
    "timestamps",
    "level",
    "host",
    "dedup",
    "time",
    "follow",
    "match",
    "filter",
    "problem",
    "warning",
    "copy_all",
    "bundle",
)
"""Actions that need a job."""


class RunScreen(MainScreen):
    """The screen of step 9. Its actions are about the job in view, or the list of jobs."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ON_RUN)]
    AUTO_FOCUS = ""

    def __init__(self, session: Session, go: Go, launching: Launching, back: Callable[[], None]) -> None:
        """Create the screen. `back` returns to the form that was shown before."""
        super().__init__(session, go)
        self.step = RUN
        self.launching, self._back = launching, back
        self.view = JobView()
        self.title_bar = JobTitle(lambda: self.view.job)
        self.acting = (self, self.view)
        self.prompts, self.explaining, self.plotting = LogPrompts(self.view), Explaining(self.view, self.action_fix), Plotting(self.view)
        self.reporting = Reporting(self.explaining, session)
        self.view.charts.pick = lambda name: self._with_job(partial(self.plotting.show, name=name))
        self._wanted: JobFolder | None = None
        """The job to show."""
        self._again = False
        self.needs = {
            **dict.fromkeys(JOB_ACTIONS, lambda: self.view.job),
            "look": lambda: self.view.job is None and self.view.jobs.keys,
            "follow": lambda: self.view.job is not None and not self.view.log_view.follow,
            "stop": lambda: self.view.job is not None and self.view.job.stoppable,
            "stacks": lambda: self.view.job is not None and self.view.job.alive and self.view.job.follower.ranks,
            "again": lambda: self.view.job is not None and not self.view.job.alive,
            "fix": lambda: self.view.why.fix,
            "reason": lambda: self.view.why.diagnosis,
            "own_editor": lambda: self.view.why.diagnosis,
        }

    def compose(self) -> ComposeResult:
        """Compose the head and the job view."""
        yield self.title_bar
        yield self.step_line
        yield self.view
        yield self.footer

    def on_mount(self) -> None:
        """Show the job that was requested before the screen was mounted."""
        self.show_parts()
        if self._wanted is not None:
            self.attach(self._wanted, again=self._again)
        else:
            self.enter()

    def on_unmount(self) -> None:
        """Let go of the files of the plot that was seen last."""
        self.plotting.close()

    def draw(self) -> None:
        """Draw everything visible from the state."""
        super().draw()
        self.view.draw()
        self.show_keys()

    def enter(self) -> None:
        """Take the focus when the screen is shown."""
        if self.view.is_mounted:
            self.view.enter()
            self.draw()

    def attach(self, folder: JobFolder, *, again: bool = False) -> None:
        """Show a job, as soon as the screen is mounted; `again`: relaunch it too."""
        self._wanted, self._again = folder, again
        self.session.note_job(folder)
        if self.view.is_mounted:
            self.view.attach(folder, self.session.state.plan.run.silence)
            self.draw()
            if again:
                self._with_job(self.launching.again)

    def _with_job(self, act: Callable[[WatchedJob], object]) -> None:
        if self.view.job is not None:
            act(self.view.job)

    # Choices of the user

    @on(RowList.Chosen, "#jobs")
    def _job_chosen(self, event: RowList.Chosen) -> None:
        self.attach(JobFolder(str(event.key)))

    @on(RowList.Moved, "#jobs")
    @on(JobView.KeysChanged)
    def _other_keys(self) -> None:
        self.show_keys()

    @on(JobStateChanged)
    def _job_changed(self, event: JobStateChanged) -> None:
        self.session.job_changed(event.word)

    @on(RowList.Chosen, "#log")
    def _line_chosen(self, event: RowList.Chosen) -> None:
        from dstui.tui.dialogs.reading import WholeLine

        lines = self.view.log_view.lines
        if isinstance(lines, LogRows) and isinstance(event.key, int):
            self.app.push_screen(WholeLine(lines, event.key, dict(self.view.job_log.hosts)))

    @on(RowList.Chosen, "#why")
    def _reason_chosen(self, event: RowList.Chosen) -> None:
        if event.key == WHOLE:
            self.action_reason()
        else:
            self.explaining.show_evidence(event.key)

    # Lines of the log

    @property
    def typing_pane(self) -> str:
        """Return the name in the table of keys of what is being typed: a filter of the log, or a search in it."""
        return "search" if self.focused is self.view.search_line else "filter"

    def action_pane(self, by: int) -> None:
        """Move the focus to the next pane; while a search is typed, toggle between text and regular expression."""
        if self.focused is self.view.search_line:
            self.view.search_line.toggle()
        else:
            super().action_pane(by)

    def action_digit(self, number: int) -> None:
        """Show the log of the rank with this number, or say why there is none. Without a job, show the step."""
        job = self.view.job
        if job is None:
            super().action_digit(number)
        elif why := rank_problem(job.follower.ranks, str(number)):
            say(self.app, f"{why} [ leads to the steps.")
        else:
            self.view.show_rank(number)

    def action_rank(self) -> None:
        """Ask for the number of a rank."""
        self._with_job(self.prompts.rank)

    def action_host(self) -> None:
        """Show the next host with its ranks and log, or ask for one."""
        self._with_job(self.prompts.host)

    def action_time(self) -> None:
        """Ask for a time or a step, and go there."""
        self._with_job(self.prompts.time)

    def action_find(self) -> None:
        """Search the log."""
        if self.view.job is not None:
            self.view.begin_search()

    def action_copy(self) -> None:
        """Copy the selection, else the chosen line, else the visible lines."""
        selected = self.get_selected_text()
        copy(self.app, *((selected, "the selection") if selected else self.view.job_log.to_copy()))

    def action_escape(self) -> None:
        """End a search, then leave a rank or a host; from the list of jobs return to the form. A job stays in view."""
        if self.view.job is not None:
            self.view.back()
        else:
            self._back()

    # The job

    def action_launch(self) -> None:
        """Relaunch the job in view; without one, show Review."""
        if self.view.job is not None:
            self.launching.again(self.view.job)
        else:
            self.launching.led_to_review()
            self.go(REVIEW)
            say(self.app, f"{key_of('launch')} again launches this.")

    def action_again(self) -> None:
        """Relaunch the job in view with its Plan as it is now."""
        self._with_job(self.launching.again)

    def action_fix(self) -> None:
        """Apply the diagnosis' fix to the Plan of the job, and show the resulting launch."""
        job, fix = self.view.job, self.view.why.fix
        if job is not None and fix is not None:
            self.launching.fix(job, fix)

    def action_stop(self) -> None:
        """Stop the job, after a question."""
        self._with_job(self.launching.stop)

    def action_stacks(self) -> None:
        """Show where each rank is in its code."""
        self._with_job(self.reporting.read_stacks)

    def action_probe(self) -> None:
        """Show the configuration that DeepSpeed had in this run."""
        self._with_job(self.reporting.show_resolved)

    def action_bundle(self) -> None:
        """Write a zip for a bug report into the current folder."""
        self._with_job(self.reporting.write_bundle)

    def action_reason(self) -> None:
        """Show the full diagnosis."""
        self.explaining.show_whole()

    def action_own_editor(self) -> None:
        """Open the script in the user's own editor, at the line that failed."""
        from dstui.tui.flows.failed_script import FailedScript

        self._with_job(FailedScript(self.app, self.view.why).open)

    def action_look(self) -> None:
        """Look at the job under the cursor of the list."""
        self.view.jobs.action_choose()

    def action_metrics(self) -> None:
        """Plot the metrics of the job."""
        self._with_job(self.plotting.show)
