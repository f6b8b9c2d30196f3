"""Answer questions about a job: why it ended, where its ranks are, its metrics as a plot, a zip for a bug report, a place in its log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App

from dstui.tui.dialogs.dialog import Prompt
from dstui.tui.dialogs.reading import FIX, LinesViewer, Reason, TextViewer
from dstui.tui.flows.saving import free_name
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.run.diagnosis_pane import full_rows, stack_rows
from dstui.tui.run.host_lines import host_choices
from dstui.tui.run.job_view import JobView
from dstui.tui.run.watched_job import WatchedJob
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.jobs.metrics.series import MetricSeries
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.watch.stacks import Stack


class Explaining:
    """Show the full diagnosis and stacks in dialogs, and go from evidence to its line in the log."""

    def __init__(self, view: JobView, fix: Callable[[], object]) -> None:
        """`fix` applies the fix of the diagnosis."""
        self.view, self._fix = view, fix

    def show_whole(self) -> None:
        """Show the full diagnosis; choosing a line of evidence shows it in the log, and the key of the fix applies it."""
        if (diagnosis := self.view.why.diagnosis) is not None:
            self.view.app.push_screen(Reason("Why it ended", partial(full_rows, diagnosis)), self._chosen)

    def _chosen(self, chosen: object) -> None:
        if chosen is FIX:
            self._fix()
        else:
            self.show_evidence(chosen)

    def show_evidence(self, evidence: object) -> None:
        """Show a line of evidence in the log; other rows of the dialog do nothing."""
        from dstui.diagnosis import Evidence

        if not isinstance(evidence, Evidence) or self.view.job is None:
            return
        if Path(evidence.file).suffix != ".log":
            say(self.view.app, f"{evidence.file}, line {evidence.line}")
            return
        self.view.show_rank(evidence.rank if evidence.file.endswith(f"rank_{evidence.rank}.log") else None)
        self.view.job_log.find(evidence.text.strip())
        self.view.log_view.focus()

    def show_stacks(self, stacks: list[Stack]) -> None:
        """Show where the ranks are: briefly in the pane under the log, in full in a dialog."""
        from dstui.jobs.watch.hang_analysis import grouped

        self.view.why.stand(grouped(stacks))
        self.view.app.push_screen(TextViewer("Where the ranks are", partial(stack_rows, stacks)))


class Plotting:
    """Open the plot. The metrics of the last plotted job are kept, so that reopening continues from there."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._series: MetricSeries | None = None

    def show(self, job: WatchedJob, name: str = "") -> None:
        """Plot the metrics of a job. `name`: the metric to begin with."""
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
    """Read and write in threads what the run screen shows of a job."""

    def __init__(self, explaining: Explaining, session: Session) -> None:
        self._explaining, self._session = explaining, session

    @property
    def _app(self) -> App[object]:
        return self._explaining.view.app

    def read_stacks(self, job: WatchedJob) -> None:
        """Read where each rank is in its code, and show it; the ranks are stopped for milliseconds."""
        say(self._app, "Reading the stacks of the ranks…")
        in_thread(self._app, partial(self._read_stacks, job))

    def _read_stacks(self, job: WatchedJob) -> None:
        from dstui.jobs.watch.stacks import stacks

        self._app.call_later(self._show_stacks, job, stacks(job.folder))

    def _show_stacks(self, job: WatchedJob, stacks: list[Stack]) -> None:
        self._app.clear_notifications()
        if not stacks:
            say(self._app, "No rank runs now.")
        elif self._explaining.view.job is job:
            self._explaining.show_stacks(stacks)

    def show_resolved(self, job: WatchedJob) -> None:
        """Show what the engines of the run resolved, and the related findings."""
        in_thread(self._app, partial(self._read_resolved, job.folder))

    def _read_resolved(self, folder: JobFolder) -> None:
        from dstui.explain import explain_run, run_lines

        viewer = LinesViewer("The configuration as resolved by DeepSpeed", run_lines(explain_run(folder), folder.name))
        self._app.call_later(self._app.push_screen, viewer)

    def write_bundle(self, job: WatchedJob) -> None:
        """Write a zip for a bug report into the current folder."""
        in_thread(self._app, partial(self._write_bundle, job.folder))

    def _write_bundle(self, folder: JobFolder) -> None:
        from dstui.base.files import FileProblem
        from dstui.bundle.bundle import bundle

        try:
            written = bundle(folder, free_name(Path.cwd() / f"{folder.name}-bundle.zip"))
        except FileProblem as problem:
            self._app.call_later(say, self._app, str(problem), "error")
        else:
            self._app.call_later(self._written, written)

    def _written(self, written: Path) -> None:
        self._session.note(f"written  {written}")
        say(self._app, f"{written}: what looked like a secret is masked; read it before you pass it on.")


STEP = r"\bstep\D{{0,3}}{}\b"
"""The form in which log lines name a step."""
FEW_HOSTS = 5
"""Up to this many hosts a key cycles through them; for more there is a list."""


class LogPrompts:
    """Ask, and show the answer in the log of the job."""

    def __init__(self, view: JobView) -> None:
        self._view = view

    def host(self, job: WatchedJob) -> None:
        """Show the next host with its ranks and log; ask for one if there are many."""
        hosts: list[str | None] = [None, *job.hosts]
        if len(hosts) > FEW_HOSTS:
            from dstui.tui.dialogs.pick import Hosts

            self._view.app.push_screen(Hosts(lambda text, width: host_choices(self._view.hosts, text, width)), self._host_chosen)
        elif len(hosts) == 2:
            say(self._view.app, f"All ranks are on {hosts[1]}.")
        else:
            here = self._view.job_log.filter.host
            self._view.show_host(hosts[(hosts.index(here) + 1) % len(hosts)] if here in hosts else None)

    def _host_chosen(self, host: str | None) -> None:
        if host is not None:
            self._view.show_host(host or None)

    def time(self, job: WatchedJob) -> None:
        """Ask for a time or a step, and go there."""
        ask = "14:02 or 14:02:11, 5m for five minutes before the end, or the number of a step:"
        prompt = Prompt("Go to a time or a step", ask, "", lambda text: time_problem(text, job.latest))
        self._view.app.push_screen(prompt, lambda text: self._time_typed(text, job.latest))

    def _time_typed(self, text: str | None, latest: float) -> None:
        from dstui.logs.time_parsing import parse_moment

        if text and text.strip().isdecimal():
            self._view.job_log.find(STEP.format(text.strip()), regex=True, own=True, name=f"step {text.strip()}")
        elif text and (goal := parse_moment(text, latest)) is not None:
            self._view.job_log.go_to_time(goal)

    def rank(self, job: WatchedJob) -> None:
        """Ask for the number of a rank."""
        prompt = Prompt("Rank", "Its number:", "", lambda text: rank_problem(job.follower.ranks, text))
        self._view.app.push_screen(prompt, lambda text: self._view.show_rank(int(text)) if text else None)


def time_problem(text: str, latest: float) -> str:
    """Return why a text is neither a time nor a step, or "". `latest`: the time (seconds since the epoch) that "5m" counts back from."""
    from dstui.logs.time_parsing import parse_moment

    return "" if text.strip().isdecimal() or parse_moment(text, latest) is not None else f"{text or '–'} is neither a time nor a step."


def rank_problem(ranks: Collection[int], text: str) -> str:
    """Return why a text is not a rank of the job; "" if it is one."""
    if text.strip().isdecimal() and int(text) in ranks:
        return ""
    return f"There is no rank {text or '–'}; this job has {f'0 to {max(ranks)}' if ranks else 'none yet'}."
