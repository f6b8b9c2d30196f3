"""The metrics of a job as a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstui.tui.run.job_view import JobView
from dstui.tui.run.watched_job import WatchedJob

if TYPE_CHECKING:
    from dstui.jobs.metrics.series import MetricSeries


class Plotting:
    """Opens the plot. What was read for the job that was plotted last is kept: opened again, it goes on from there."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._series: MetricSeries | None = None

    def show(self, job: WatchedJob) -> None:
        """The numbers of this job, under the head that it has."""
        from dstui.jobs.metrics.series import MetricSeries
        from dstui.tui.plot.plot_screen import Plot

        if self._series is None or self._series.folder != job.folder:
            if self._series is not None:
                self._series.close()
            self._series = MetricSeries(job.folder)
        self._view.app.push_screen(Plot(self._series, lambda: self._view.head.rows[0]))
