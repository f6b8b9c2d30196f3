"""What a job has to tell: why it ended, where each rank is in its code, its metrics as a plot, a zip for a bug report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.screen import Screen

from dstui.tui.dialogs.reading import WIDTH, TextViewer
from dstui.tui.flows.saving import free_name
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.run.diagnosis_pane import stack_rows, whole_rows
from dstui.tui.run.job_view import JobView
from dstui.tui.run.watched_job import WatchedJob
from dstui.tui.session.messages import StacksRead
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.jobs.metrics.series import MetricSeries
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.watch.stacks import Stack


class Explaining:
    """Shows over the app what the pane under the log has no room for, and leads from it into the log."""

    def __init__(self, view: JobView) -> None:
        self._view = view

    def show_whole(self) -> None:
        """The whole diagnosis; a line of evidence that is chosen in it is shown in the log."""
        if (diagnosis := self._view.why.diagnosis) is not None:
            self._view.app.push_screen(TextViewer("Why it ended", whole_rows(diagnosis, self._room)), self.show_evidence)

    def show_evidence(self, evidence: object) -> None:
        """A line of evidence where it stands in the log; any other row of that pane leads nowhere."""
        from dstui.diagnosis import Evidence

        if not isinstance(evidence, Evidence) or self._view.job is None:
            return
        if Path(evidence.file).suffix != ".log":
            say(self._view.app, f"{evidence.file}, line {evidence.line}")
            return
        self._view.show_rank(evidence.rank if evidence.file.endswith(f"rank_{evidence.rank}.log") else None)
        self._view.job_log.find(evidence.text.strip())
        self._view.log_view.focus()

    def show_stacks(self, stacks: list[Stack]) -> None:
        """Show where the ranks are: shortly in the pane under the log, at length in a dialog."""
        from dstui.jobs.watch.hang_analysis import grouped

        self._view.why.stand(grouped(stacks))
        self._view.app.push_screen(TextViewer("Where the ranks are", stack_rows(stacks, self._room)))

    @property
    def _room(self) -> int:
        """Cells for the text of a dialog."""
        return min(WIDTH, self._view.app.size.width - 10)


class Plotting:
    """Opens the plot. What was read for the job that was plotted last is kept: opened again, it goes on from there."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._series: MetricSeries | None = None

    def show(self, job: WatchedJob, name: str = "") -> None:
        """The numbers of this job, under the head that it has. `name`: the metric to begin with."""
        from dstui.jobs.metrics.series import MetricSeries
        from dstui.tui.plot.plot_screen import Plot

        if self._series is None or self._series.folder != job.folder:
            self.close()
            self._series = MetricSeries(job.folder)
        self._view.app.push_screen(Plot(self._series, lambda: self._view.head.rows[0], name))

    def close(self) -> None:
        """Let go of the files that were read for it."""
        if self._series is not None:
            self._series.close()


class Reporting:
    """Works in threads for the screen of the run. Posts StacksRead to it."""

    def __init__(self, screen: Screen[None], session: Session) -> None:
        self._screen, self._session = screen, session

    def read_stacks(self, job: WatchedJob) -> None:
        """Ask py-spy where each rank is; the ranks are stopped for milliseconds."""
        say(self._screen.app, "Looking where the ranks are…")
        in_thread(self._screen, partial(self._read_stacks, job.folder))

    def _read_stacks(self, folder: JobFolder) -> None:
        from dstui.jobs.watch.stacks import stacks

        self._screen.post_message(StacksRead(folder, stacks(folder)))

    def write_bundle(self, job: WatchedJob) -> None:
        """Write a zip for a bug report into the current folder."""
        in_thread(self._screen, partial(self._write_bundle, job.folder))

    def _write_bundle(self, folder: JobFolder) -> None:
        from dstui.base.files import FileProblem
        from dstui.bundle.bundle import bundle

        try:
            written = bundle(folder, free_name(Path.cwd() / f"{folder.name}-bundle.zip"))
        except FileProblem as problem:
            self._screen.call_later(say, self._screen.app, str(problem), "error")
        else:
            self._screen.call_later(self._written, written)

    def _written(self, written: Path) -> None:
        self._session.note(f"written  {written}")
        say(self._screen.app, f"{written}: what looked like a secret is masked; look through it before you hand it on.")
