"""A comparison of runs: differing Plan keys, metrics, resources, and how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType

from dstui.jobs.metrics.series import MetricSeries
from dstui.runs.columns import Kept, plain_column
from dstui.runs.compare import Comparison, compare
from dstui.runs.run import Run
from dstui.runs.table import BEST, lines
from dstui.tui.dialogs.dialog import Over
from dstui.tui.kit.keys import COMPARE, bindings
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row, row
from dstui.tui.kit.tools import copy, in_thread, label
from dstui.tui.plot.plot_screen import Plot

HEADINGS = {"run": "How they ended", "plan": "How their Plans differ", "metric": "Their final metrics (mean of the ranks)"}
FRAME = 8


class Compared(Over[None]):
    """The comparison of two to eight runs."""

    CSS = """
    #compared { height: 1fr; }
    """
    PANE = COMPARE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(frozenset({COMPARE}))]

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs, self.rows = runs, RowList(id="compared", classes="pane")
        self.comparison: Comparison | None = None

    def compose(self) -> ComposeResult:
        """Compose the table and the footer."""
        yield self.rows
        yield self.footer

    def on_mount(self) -> None:
        """Read the runs in a thread."""
        self.rows.focus()
        label(self.rows, f"{len(self.runs)} runs")
        self.draw()
        in_thread(self, self._read)

    def _read(self) -> None:
        found = compare(self.runs)
        self.call_later(self._take, found)

    def _take(self, found: Comparison) -> None:
        self.comparison = found
        self.draw()

    @on(RowList.Resized)
    def draw(self) -> None:
        """Draw everything for the size of the screen."""
        if self.comparison is None:
            self.rows.show_rows([row(("Reading the logs of these runs…", "dim"))])
            return
        self.rows.show_rows(compared_rows(self.comparison, max(self.app.size.width - FRAME, 40)))
        partly = self.comparison.partly
        label(self.rows, f"{len(self.runs)} runs", f"{', '.join(partly)} was not read to the end" if partly else f"{BEST.strip()} the best")

    def action_copy_markdown(self) -> None:
        """Copy the table as Markdown."""
        if self.comparison is not None:
            copy(self.app, self.comparison.as_markdown(), "the table as Markdown")

    def action_curves(self) -> None:
        """Plot the curves of these runs together."""
        show_curves(self.app, self.runs)

    def action_escape(self) -> None:
        """Return to the table of runs."""
        self.dismiss(None)


def compared_rows(found: Comparison, width: int) -> list[Row]:
    """Return the comparison as rows; each has a key, so that a long comparison scrolls."""
    texts = found.as_texts()
    columns = [plain_column(name, keeps="ends") for name in texts[0]]
    labels: list[Kept] = ["start", *("end" if line.section == "plan" else "start" for line in found.lines)]
    titles, *drawn = lines(texts, columns, width, labels)
    rows = [row((titles, "title"))]
    before = ""
    for number, (line, text) in enumerate(zip(found.lines, drawn, strict=True)):
        if line.section != before:
            rows += [BLANK, row((HEADINGS[line.section], "dim"))]
            before = line.section
        rows.append(row(text, key=number))
    return rows


def show_curves(app: App[object], runs: Sequence[Run]) -> None:
    """Plot the curves of runs together, the first run with metrics as the main one; their logs are closed with the plot."""
    first, *others = (MetricSeries(run.folder) for run in sorted(runs, key=lambda run: not run.latest.metrics))
    names = ", ".join(run.name for run in runs)
    app.push_screen(Plot(first, lambda: row((names, "dim")), others=others), lambda _: first.close())
