"""What the app does with jobs: review, launch, look at one, stop it. The job itself never depends on the app."""

from __future__ import annotations

import shlex
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from textual import on
from textual.widget import Widget

from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.forms.steps import Step
from dstui.tui.forms.steps.review_run import RUN
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.threads import in_thread
from dstui.tui.logkeys import LogKeys
from dstui.tui.session.session import JobState
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.run.jobs.folder import JobFolder
    from dstui.run.metrics.series import MetricSeries
    from dstui.tui.forms.review import Review


Part = TypeVar("Part", bound=Widget)


class Jobs(LogKeys):
    """The part of the app that concerns jobs. Its panes are mounted when they are first seen."""

    review: Review | None = None
    history: MetricSeries | None = None
    """What was read for the plot of the job that is looked at: opened again, it goes on from there."""

    # The two panes

    def open_pane(self, step: Step) -> None:
        """Show the pane of a step that has no form."""
        if step.pane == "review":
            if self.review is None:
                from dstui.tui.forms.review import Review

                self.review = self.show_part(Review())
            self.review.names.focus()
        elif self.run_pane is None:
            from dstui.tui.run.run_pane import RunPane

            self.run_pane = self.show_part(RunPane())
        else:
            self.run_pane.enter()

    def show_pane(self, state: State) -> None:
        """Draw the pane that is open."""
        if self.step.pane == "review" and self.review is not None:
            self.review.show(state, self.store.path)
        elif self.step.pane == "run" and self.run_pane is not None:
            self.run_pane.draw()

    def back_in_pane(self) -> bool:
        """Escape: end a search, or go back to the list of names. False where the pane itself is to be left; a job stays in view."""
        if self.step.pane == "review":
            there, inside = self.review, self.focused
            if there is None or inside is there.names:
                return False
            there.names.focus()
            return True
        if self.run_pane is None or self.run_pane.folder is None:
            return False
        self.run_pane.log_view.find("")
        return True

    def action_copy(self) -> None:
        """What is on the screen: the chosen file, the log in view, or ds_config.json."""
        if self.step.pane == "review" and self.review is not None:
            name, text = self.review.chosen
            self.copy(text, name)
        elif self.step.pane == "run" and self.run_pane is not None:
            self.copy(self.run_pane.log_view.visible_text(), "the lines in view")
        else:
            self.copy("\n".join(line.text for line in self.store.state.lines) + "\n", "ds_config.json")

    # Launch and stop

    def action_launch(self) -> None:
        """Start the job, detached; errors are said and nothing is started."""
        state = self.store.state
        first = next((f for f in state.findings if f.severity == "error"), None)
        if first is not None:
            self.say(f"Not launched: {first.message}", "error")
        elif self.run_pane is not None and self.run_pane.alive:
            answers = [Answer("y", "launch another one beside it", True), Answer("n", "no", False)]
            self.push_screen(Ask("A job is running", f"{self.run_pane.name_of_job} has not ended.", answers), self._launch)
        else:
            self._launch(True)

    def _launch(self, yes: bool | None) -> None:
        if not yes:
            return
        self.say("Starting…")
        in_thread(self, self._start)

    def _start(self) -> None:
        from dstui.run.supervise.start import LaunchError, start

        try:
            folder = start(self.store.state.launch_target())
        except LaunchError as error:
            self.call_later(self.say, f"Not launched: {error}", "error")
        else:
            self.call_later(self.watch_job, folder)

    def watch_job(self, folder: JobFolder) -> None:
        """Look at a job in the run screen."""
        self.clear_notifications()
        self._note(f"job      {folder.path}")
        name = shlex.quote(folder.path.name)
        self._note(f"         dstui attach {name}     dstui stop {name}")
        self.show_step(RUN)
        self.call_after_refresh(self.show_job, folder)

    def show_job(self, folder: JobFolder) -> None:
        """Show a job's ranks and logs."""
        if self.run_pane is not None:
            self.run_pane.attach(folder, self.store.state.plan.run.silence)
            self.redraw_all()

    @on(JobState)
    def _job_state(self, event: JobState) -> None:
        self.store.job_is(event.word)

    @on(RowList.Chosen, "#jobs")
    def _job_chosen(self, event: RowList.Chosen) -> None:
        from dstui.run.jobs.folder import JobFolder

        self.show_job(JobFolder(str(event.key)))

    def action_jobs(self) -> None:
        """Back to the list of jobs."""
        if self.run_pane is not None:
            self.run_pane.detach()
            self.store.job_is("")
            self.run_pane.show_jobs()

    def action_stop(self) -> None:
        """Stop the job that is looked at, after a question."""
        pane = self.run_pane
        if pane is None or not pane.alive or pane.folder is None:
            self.say("No job is running here.")
            return
        text = "Its ranks are asked to end (SIGTERM) and have 5 s for it; then every process of the job is asked, "
        text += "and after 5 s more SIGKILL ends what is left."
        answers = [Answer("y", "stop it", True), Answer("n", "let it run", False)]
        self.push_screen(Ask(f"Stop {pane.name_of_job}?", text, answers), self._stop)

    def _stop(self, yes: bool | None) -> None:
        if yes and self.run_pane is not None and self.run_pane.folder is not None:
            self.run_pane.stopping = monotonic()
            in_thread(self, partial(self._stop_it, self.run_pane.folder))

    def _stop_it(self, folder: JobFolder) -> None:
        from dstui.run.supervise.stop import stop

        report = stop(folder)
        if report.refused:
            self.call_later(self.say, f"Not stopped: {folder.name} {report.refused}.", "error")
            return
        left = f" Still there: {'; '.join(map(str, report.left))}" if report.left else " No process is left."
        self.call_later(self.say, f"Stopped.{left}", "error" if report.left else "information")

    def job_lives(self) -> bool:
        """Whether the job that is looked at has not ended."""
        return self.run_pane is not None and self.run_pane.alive

    def action_metrics(self) -> None:
        """The metrics of the job as a plot."""
        from dstui.run.metrics.series import MetricSeries
        from dstui.tui.plot.plot_screen import Plot

        pane = self.run_pane
        if pane is None or pane.folder is None:
            return
        if self.history is None or self.history.folder != pane.folder:
            if self.history is not None:
                self.history.close()
            self.history = MetricSeries(pane.folder)
        head = pane.head
        self.push_screen(Plot(self.history, lambda: head.rows[0]))

    def show_part(self, part: Part) -> Part:
        """Mount a further part of the body; the app knows where."""
        raise NotImplementedError

    def redraw_all(self) -> None:
        """Draw everything again; the app knows how."""
        raise NotImplementedError
