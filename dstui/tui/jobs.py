"""What the app does with jobs: review, launch, look at one, stop it. The job itself never depends on the app."""

from __future__ import annotations

import shlex
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from textual import on

from dstui.tui.logkeys import LogKeys
from dstui.tui.screens.dialog import Answer, Ask
from dstui.tui.state import State
from dstui.tui.steps import Step
from dstui.tui.steps.last import RUN
from dstui.tui.store import JobState
from dstui.tui.widgets.rows import Rows

if TYPE_CHECKING:
    from dstui.run.folder import JobFolder
    from dstui.run.history import History
    from dstui.tui.widgets.review import Review


class Jobs(LogKeys):
    """The part of the app that concerns jobs. Its panes are mounted when they are first seen."""

    review: Review | None = None
    history: History | None = None
    """What was read for the plot of the job that is looked at: opened again, it goes on from there."""

    # The two panes

    def open_pane(self, step: Step) -> None:
        """Show the pane of a step that has no form."""
        if step.pane == "review":
            if self.review is None:
                from dstui.tui.widgets.review import Review

                self.review = Review()
                self.query_one("#body").mount(self.review)
                self.arrange()
            self.call_after_refresh(self._enter_review)
        else:
            if self.run_pane is None:
                from dstui.tui.widgets.run import Run

                self.run_pane = Run()
                self.query_one("#body").mount(self.run_pane)
                self.arrange()
            self.call_after_refresh(self._enter_run)

    def _enter_review(self) -> None:
        if self.review is None:
            return
        if not self.review.is_mounted:  # its lists are not there yet
            self.call_after_refresh(self._enter_review)
            return
        self.query_one("#review-names").focus()
        self.review.show(self.store.state, self.store.path)

    def _enter_run(self) -> None:
        pane = self.run_pane
        if pane is not None and pane.folder is None:
            pane.show_jobs()
        elif pane is not None:
            pane.log_view.focus()

    def show_pane(self, state: State) -> None:
        """Draw the pane that is open."""
        if self.step.pane == "review" and self.review is not None and self.review.is_mounted and self.review.children:
            self.review.show(state, self.store.path)
        elif self.step.pane == "run" and self.run_pane is not None and self.run_pane.is_mounted and self.run_pane.children:
            self.run_pane.draw()

    def back_in_pane(self) -> None:
        """Escape: end a search, else go back to the list of names."""
        if self.step.pane == "review":
            self.query_one("#review-names").focus()
        elif self.run_pane is not None and self.run_pane.log_view.search is not None:
            self.run_pane.log_view.find("")

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
        self.run_worker(self._start, thread=True, exit_on_error=False, group="launch", exclusive=True)

    def _start(self) -> None:
        from dstui.run.start import LaunchError, start

        try:
            folder = start(self.store.state.plan, self.store.state.known_machine)
        except LaunchError as error:
            self.call_from_thread(self.say, f"Not launched: {error}", "error")
        else:
            self.call_from_thread(self.watch_job, folder)

    def watch_job(self, folder: JobFolder) -> None:
        """Look at a job in the run screen."""
        self.clear_notifications()
        self._note(f"job      {folder.path}")
        name = shlex.quote(folder.path.name)
        self._note(f"         dstui attach {name}     dstui stop {name}")
        self.show_step(RUN)
        self.call_after_refresh(self.look_at, folder)

    def look_at(self, folder: JobFolder) -> None:
        """Show a job's ranks and logs."""
        if self.run_pane is not None:
            self.run_pane.attach(folder, self.store.state.plan.run.silence)
            self.redraw_all()

    @on(JobState)
    def _job_state(self, event: JobState) -> None:
        self.store.job_is(event.word)

    @on(Rows.Chosen, "#jobs")
    def _job_chosen(self, event: Rows.Chosen) -> None:
        from dstui.run.folder import JobFolder

        self.look_at(JobFolder(str(event.key)))

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
            self.run_worker(partial(self._stop_it, self.run_pane.folder), thread=True, exit_on_error=False, group="stop")

    def _stop_it(self, folder: JobFolder) -> None:
        from dstui.run.stop import stop

        report = stop(folder)
        if report.refused:
            self.call_from_thread(self.say, f"Not stopped: {folder.name} {report.refused}.", "error")
            return
        left = f" Still there: {'; '.join(map(str, report.left))}" if report.left else " No process is left."
        self.call_from_thread(self.say, f"Stopped.{left}", "error" if report.left else "information")

    def watching(self) -> bool:
        """Whether a job is looked at."""
        return self.run_pane is not None and self.run_pane.folder is not None

    def job_lives(self) -> bool:
        """Whether the job that is looked at has not ended."""
        return self.run_pane is not None and self.run_pane.alive

    def action_metrics(self) -> None:
        """The metrics of the job as a plot."""
        from dstui.run.history import History
        from dstui.tui.screens.plot import Plot
        from dstui.tui.widgets.runhead import RunHead

        pane = self.run_pane
        if pane is None or pane.folder is None:
            return
        if self.history is None or self.history.folder != pane.folder:
            if self.history is not None:
                self.history.close()
            self.history = History(pane.folder)
        head = pane.query_one(RunHead)
        self.push_screen(Plot(self.history, lambda: head.rows[0]))

    def arrange(self) -> None:
        """Show the parts that belong on the screen; the app knows which."""
        raise NotImplementedError

    def redraw_all(self) -> None:
        """Draw everything again; the app knows how."""
        raise NotImplementedError
