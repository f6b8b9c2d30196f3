"""The metrics of a job over its steps: a list of them, and a live plot of the chosen one over the whole run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message

from dstui.base.text import sanitise
from dstui.jobs.metrics.series import KEPT_RANKS, MetricSeries
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.summary import value_text
from dstui.jobs.watch.usage_history import EVERY, read_later
from dstui.plan.patterns import METRICS
from dstui.tui.dialogs.dialog import Dialog, Over
from dstui.tui.kit.keys import PLOT, bindings
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span, fit, paragraph, row
from dstui.tui.kit.tools import in_thread, label, say
from dstui.tui.plot.canvas import Canvas
from dstui.tui.plot.curves import WEIGHTS, View, picture
from dstui.tui.run.run_series import USED, usage_metrics
from dstui.tui.session.settings import remember, setting

SLICE = 0.03
"""Seconds of reading after which the screen gets its turn."""
BREATH, PAUSE, REST = 0.01, 0.5, 10.0
"""Seconds between two slices while there is more to read, if there is not, and if no job is running any more."""
FRAME = 0.3
"""Seconds between two drawings while more is read."""
NAME_CELLS, LIST_CELLS = 15, 22
READING, NOTHING = "Reading the logs…", "No metrics yet."


class Plot(Over[None]):
    """The plot of one job's metrics, with those of other runs overlaid on request."""

    CSS = """
    #metrics { width: 28; }
    #plot-box { width: 1fr; padding: 0 1; }
    #canvas { width: 1fr; height: 1fr; }
    #plot-head { height: 1; background: $surface; }
    """
    PANE = PLOT
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(frozenset({PLOT}))]

    class Grown(Message):
        """More metrics were read."""

        def can_replace(self, message: Message) -> bool:
            """Return True: one redraw is enough."""
            return isinstance(message, Plot.Grown)

    def __init__(self, history: MetricSeries, headline: Callable[[], Row], name: str = "", others: Sequence[MetricSeries] = ()) -> None:
        """Create the screen. `history` stays open when the plot is closed; `headline`: the job's state; `name`: the metric to show.

        `others`: runs that are overlaid from the beginning.
        """
        super().__init__()
        self.view = View(name) if name else View()
        self.history = history
        self.others = list(others)
        self._headline = headline
        self._chosen = bool(name)
        self._due = False  # whether a drawing follows the next frame
        self._over, self._changed = Event(), Event()
        self.head, self.metrics = RowList(id="plot-head"), RowList(id="metrics", classes="pane")
        self.canvas, self.box = Canvas(), Vertical(id="plot-box", classes="pane")

    def compose(self) -> ComposeResult:
        """Compose the list and the plot."""
        self.head.can_focus = False
        yield self.head
        with Horizontal():
            yield self.metrics
            with self.box:
                yield self.canvas
        yield self.footer

    def on_mount(self) -> None:
        """Start reading."""
        self.metrics.focus()
        in_thread(self, self._read)
        self._clock = self.set_interval(1.0, self._draw_head)
        self.draw()

    def on_unmount(self) -> None:
        """Stop reading."""
        self._over.set()
        self._changed.set()

    @on(Grown)
    @on(RowList.Resized)
    def _draw_soon(self) -> None:
        """Draw once for everything that has changed until then: a new screen has several sizes and the first metrics at once."""
        if not self._due:
            self._due = True
            self.call_after_refresh(self._draw_due)

    def _draw_due(self) -> None:
        self._due = False
        self.draw()

    # In the worker's thread

    def _read(self) -> None:
        reported, read, looked = 0.0, list[MetricSeries](), 0.0
        while not self._over.is_set():
            if time.monotonic() - looked >= EVERY:
                looked = time.monotonic()
                self._read_usage()
            before, read = read, [self.history, *self.others]
            for history in before:
                if history not in read:
                    history.close()  # an overlaid run
            new = [history.advance(SLICE) for history in read]
            if any(new) and time.monotonic() - reported >= FRAME:
                reported = time.monotonic()
                self.post_message(self.Grown())
            elif not any(new) and reported:
                reported = 0.0
                self.post_message(self.Grown())
            ended = not any(new) and all(history.ended for history in read)
            self._changed.wait(BREATH if any(new) else REST if ended else PAUSE)
            self._changed.clear()
        for history in read[1:]:
            history.close()

    def _read_usage(self) -> None:
        """Add what the ranks have used since the last look."""
        series = self.history
        began = series.folder.read_span().started or 0.0
        for look in read_later(series.folder.path, series.used_until):
            series.add([*usage_metrics(look, began)])
            series.used_until = max((samples[-1].t for samples in look.samples.values()), default=series.used_until)

    # Content

    def draw(self) -> None:
        """Draw everything from what was read so far."""
        self._draw_list()
        self._draw_plot()
        self._draw_head()

    def _draw_list(self) -> None:
        names = self.history.names()
        first = next(iter(names), self.view.name)
        if not self._chosen and first != self.view.name:  # what the ranks use is often read before the loss, which comes first
            self._change_view(name=first)
        metrics = self.metrics
        rows = [_metric_row(name, value) for name, value in names.items()]
        metrics.show_rows(rows or paragraph(NOTHING if self.history.complete else READING, LIST_CELLS, "dim"))
        metrics.cursor = self.view.name if self.view.name in names else None
        label(metrics, "Metrics", self._progress())

    def _draw_plot(self) -> None:
        canvas, box = self.canvas, self.box
        shown = picture(self.history, self.view, (canvas.size.width, canvas.size.height), value_text, self.others)
        canvas.show(shown)
        faults = f"✖ {shown.faults}" if shown.faults else ""
        left = f"{shown.left_out:,} values of 0 or less left out" if shown.left_out else ""
        below = (faults, left, f"{self.history.folder.name} over {'seconds' if self.view.name in USED else 'steps'}")
        title = list(filter(None, self._title()))
        if sum(map(cell_len, title)) + len(" · ") * (len(title) - 1) > box.size.width - 6:
            title.pop()  # what the metric means; its name says most of it
        label(box, " · ".join(title), "  ".join(filter(None, below)))

    def _draw_head(self) -> None:
        if self.history.ended:
            self._clock.pause()  # the headline has no running time any more
        line = self._headline()
        self.head.show_rows([Row(line.left, (*line.right, *self._notes()))])

    def _title(self) -> list[str]:
        view, tellers = self.view, self.history.tellers(self.view.name)
        whose = f"rank {tellers[0]}" if len(tellers) == 1 else f"mean of {len(tellers)} ranks, least, largest"
        if view.each and len(tellers) > 1:
            whose = f"{len(tellers)} ranks" if len(tellers) <= KEPT_RANKS else f"the first {KEPT_RANKS} of {len(tellers)} ranks"
        about = [view.name, whose if tellers else ""]
        about += [f"smoothed {view.weight:g}" if view.weight else "", "log" if view.log else ""]
        if len(self.others) > 1:
            about.append(f"beside {len(self.others)} other runs")
        about += [
            f"beside {other.folder.name}" + ("" if other.tellers(view.name) else ", which has none")
            for other in self.others[: len(self.others) == 1]
        ]
        return [*about, (METRICS | USED).get(view.name, "as in the log, or a pattern of the Plan")]

    def _progress(self) -> str:
        read, there = self.history.read
        share = f"1/{self.history.stride} of the log" if self.history.stride > 1 else ""
        return share if self.history.complete or not there else f"reading {100 * read // there} %"

    def _notes(self) -> list[Span]:
        notes = self.history.notices[-1:]
        notes += [f"the first {self.history.left_out} attempts are left out"] if self.history.left_out else []
        return [Span("; ".join(notes), "warning")] if notes else []

    # Actions of keys

    def _change_view(self, **changes: Any) -> None:
        self.view = replace(self.view, **changes)

    @on(RowList.Moved, "#metrics")
    def _moved(self, event: RowList.Moved) -> None:
        if event.key != self.view.name and event.key == self.metrics.cursor:  # the cursor may have moved on since
            self._chosen = True
            self._change_view(name=str(event.key))
            self.draw()

    def action_all_ranks(self) -> None:
        """Toggle between the mean of all ranks and a line for each."""
        self._change_view(each=not self.view.each)
        self.draw()

    def action_smooth(self, by: int) -> None:
        """Smooth more or less."""
        at = min(max(WEIGHTS.index(self.view.weight) + by, 0), len(WEIGHTS) - 1)
        self._change_view(weight=WEIGHTS[at])
        self.draw()

    def action_log(self) -> None:
        """Toggle between a logarithmic and a linear scale."""
        self._change_view(log=not self.view.log)
        self.draw()

    def action_pin(self) -> None:
        """Put the metric first on the dashboard, or take it back."""
        pinned, name = list(setting("pinned")), self.view.name
        others = [each for each in pinned if each != name]
        in_thread(self, partial(remember, "pinned", others if name in pinned else [name, *others]))
        say(self.app, f"{name}: {'no longer first' if name in pinned else 'first'} on the dashboard")

    def action_overlay(self) -> None:
        """Overlay another run, or remove the overlay."""
        if self.others:
            self.others = []
            self._changed.set()
            self.draw()
        else:
            self.app.push_screen(OtherRun(self.history.folder), self._lay_over)

    def _lay_over(self, path: str | None) -> None:
        if path:
            self.others = [MetricSeries(JobFolder(path))]
            self._changed.set()
            self.draw()

    def action_metrics(self) -> None:
        """Return to the log."""
        self.dismiss(None)

    def action_escape(self) -> None:
        """Return to the log."""
        self.dismiss(None)


def _metric_row(name: str, value: float | None) -> Row:
    return row(
        fit(name, NAME_CELLS), right=[("" if value is None else value_text(name, value), "title" if name == "loss" else "")], key=name
    )


class OtherRun(Dialog):
    """Choose the run to overlay. Result: its folder."""

    ROWS = "other-runs"

    def __init__(self, but: JobFolder) -> None:
        super().__init__("Add another run to the plot")
        self._but = but

    def on_mount(self) -> None:
        """List the runs that still exist, those of the same folder and the newest first; a thread looks for them."""
        self._show([row(("Looking for runs…", "dim"))])
        self.rows.focus()
        in_thread(self, self._find)

    def _find(self) -> None:
        from dstui.jobs.store.index import folders

        found = [folder for folder in reversed(folders()) if folder != self._but]
        found.sort(key=lambda folder: folder.begun_in != self._but.begun_in)  # those of other projects last
        rows = [self._row(folder) for folder in found]
        self.call_later(self._show, rows or [row(("There is no other run yet.", "dim"))])

    def _row(self, folder: JobFolder) -> Row:
        """Return a run with its state; with its folder if it is of another project."""
        status = folder.read_status()
        place = "" if folder.begun_in == self._but.begun_in else f"{sanitise(folder.begun_in)}  "
        return row(folder.name, right=[(place, "faint"), (status.state if status else "", "dim")], key=str(folder.path))

    def _show(self, rows: list[Row]) -> None:
        self.rows.show_rows(rows)
        self.rows.styles.height = min(len(rows), 16)

    @on(RowList.Chosen)
    def _picked(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(str(event.key))
