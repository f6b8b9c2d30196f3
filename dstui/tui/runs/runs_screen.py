"""The live table of runs: sorted, filtered, and marked for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from dstui.jobs.store.folder import JobFolder
from dstui.runs.columns import COLUMNS, USUAL
from dstui.runs.compare import MAX_RUNS
from dstui.runs.conditions import parse, unknown
from dstui.runs.run import Run
from dstui.tui.dialogs.dialog import Over, Prompt
from dstui.tui.kit.keys import RUNS, bindings, key_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, row
from dstui.tui.kit.tools import in_thread, label, say
from dstui.tui.runs.compare_screen import Compared, show_curves
from dstui.tui.runs.reading import Reading, Table, Wish
from dstui.tui.session.settings import remember, setting

STYLES = {"succeeded": "ok", "failed": "error", "lost": "error", "stopped": "warning", "running": "accent"}
UNSORTED = ("started", "age", "changed")
"""Columns by which the keys do not sort: by the start they begin, and a list of changes has no order."""
COLUMNS_ASKED = (
    "Names separated by commas, in this order: {names}; also the name of any metric, or of a key of the Plans (stage, lr). "
    "Empty: those that fit."
)
FRAME = 6
"""Cells of a line outside of the table: frame, margin, mark, scroll bar."""
MARKED, UNMARKED = "◉ ", "  "
OF_A_RUN = ("look", "mark", "compare", "curves", "order", "reverse", "start_again")
"""Actions that need a run in the table."""
ASKED = "Only the runs for which all of these hold: stage=3 loss<2 failed lr>1e-4 took>1h !name. Empty shows all."


class RunsTable(Over["tuple[JobFolder, bool] | None"]):
    """The table. Result: the run to show and whether to relaunch it; None to return."""

    CSS = """
    #runs-frame { height: 1fr; border: round $primary; border-title-color: $primary; }
    #runs-head { height: 1; }
    #runs { height: 1fr; }
    """
    PANE = RUNS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(frozenset({RUNS}))]

    def __init__(self) -> None:
        super().__init__()
        self.frame, self.head, self.rows = Vertical(id="runs-frame", classes="pane"), RowList(id="runs-head"), RowList(id="runs")
        self.wish, self.table = Wish(columns=_state_first(setting("columns"))), Table()
        self.marked: list[str] = []
        """The folders of the marked runs, in the order in which they were marked."""
        self._known: dict[str, Run] = {}
        self._reading = Reading(lambda table: self.call_later(self._take, table))

    def compose(self) -> ComposeResult:
        """Compose the titles, the runs and the footer."""
        self.head.can_focus = False
        with self.frame:
            yield self.head
            yield self.rows
        yield self.footer

    def on_mount(self) -> None:
        """Start reading."""
        self.rows.show_rows([row(("Looking for runs…", "dim"))])
        self.rows.focus()
        self._want(width=self._width)
        in_thread(self, self._reading.work)

    def on_unmount(self) -> None:
        """Stop reading."""
        self._reading.end()

    @property
    def _width(self) -> int:
        return max(self.app.size.width - FRAME, 40)

    @on(RowList.Resized)
    def _resized(self) -> None:
        if self._width != self.wish.width:
            self._want(width=self._width)

    # Content

    def _want(self, **changes: object) -> None:
        self.wish = replace(self.wish, **changes)  # type: ignore[arg-type]
        self._reading.want(self.wish)
        self._draw_frame()

    def _take(self, table: Table) -> None:
        self.table = table
        self._known |= {str(run.folder.path): run for run in table.runs}
        self.draw()

    def draw(self) -> None:
        """Draw the table that was read last."""
        titles, *texts = self.table.texts
        self.head.show_rows([row((f"  {titles}", "dim"))])
        rows = [self._row(run, text) for run, text in zip(self.table.runs, texts, strict=True)]
        nothing = "No run matches the filter." if self.table.all else f"No runs yet. Step 8 launches one ({key_of('launch')})."
        self.rows.show_rows(rows or [row((nothing, "dim"))])
        self._draw_frame()
        self.show_keys()

    def _row(self, run: Run, text: str) -> Row:
        path, state = str(run.folder.path), self.table.columns[0].text(run)
        mark = MARKED if path in self.marked else UNMARKED
        return row((mark, "accent"), (state, STYLES.get(run.status.state, "dim")), text[len(state) :], key=path)

    def _draw_frame(self) -> None:
        shown, wish = self.table, self.wish
        number = str(shown.all) if len(shown.runs) == shown.all else f"{len(shown.runs)} of {shown.all}"
        about = [f"Runs {number}", f"sort: {wish.sort} {'↓' if wish.reverse else '↑'}", wish.text]
        below = [f"{len(self.marked)} marked" if self.marked else "", f"reading {shown.unread} more…" if shown.unread else ""]
        label(self.frame, " · ".join(filter(None, about)), "  ".join(filter(None, below)))

    # Actions of keys

    def can(self, action: str) -> bool:
        """Return whether an action would have an effect now: those on a run need one."""
        return bool(self.rows.keys) or action not in OF_A_RUN

    def action_look(self) -> None:
        """Choose the run under the cursor."""
        self.rows.action_choose()

    @on(RowList.Chosen, "#runs")
    def _look(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss((JobFolder(str(event.key)), False))

    def action_start_again(self) -> None:
        """Show the run under the cursor, and relaunch it."""
        if self.rows.cursor is not None:
            self.dismiss((JobFolder(str(self.rows.cursor)), True))

    def action_mark(self) -> None:
        """Toggle the mark of the run under the cursor, and move to the next."""
        path = self.rows.cursor
        if path is None:
            return
        if path in self.marked:
            self.marked.remove(str(path))
        elif len(self.marked) == MAX_RUNS:
            say(self.app, f"Up to {MAX_RUNS} runs are compared.")
            return
        else:
            self.marked.append(str(path))
        self.draw()
        self.rows.action_move(1)

    def action_order(self, by: int) -> None:
        """Sort by the next column, or by the one before; when things began, the latest first."""
        sorts = ("started", *(name for name in self.wish.columns or USUAL if name not in UNSORTED))
        at = sorts.index(self.wish.sort) if self.wish.sort in sorts else -1
        sort = sorts[(at + by) % len(sorts)]
        self._want(sort=sort, reverse=sort == "started")

    def action_columns(self) -> None:
        """Ask for the columns, and remember them."""
        text = COLUMNS_ASKED.format(names=", ".join(COLUMNS))
        self.app.push_screen(Prompt("Columns", text, ", ".join(self.wish.columns or USUAL)), self._columns_named)

    def _columns_named(self, text: str | None) -> None:
        if text is not None:
            names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
            chosen = () if names == USUAL else names
            in_thread(self, partial(remember, "columns", list(chosen)))
            self._want(columns=_state_first(chosen))

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._want(reverse=not self.wish.reverse)

    def action_condition(self) -> None:
        """Ask for conditions, and show only the runs that meet them."""
        self.app.push_screen(Prompt("Filter", ASKED, self.wish.text, _wrong), self._filtered)

    def _filtered(self, text: str | None) -> None:
        if text is None:
            return
        conditions = parse(text)
        if key := unknown(list(self._known.values()), [one.key for one in conditions if one.key]):
            say(self.app, f"No run has {key}: it is not a column, a metric, or a key of their Plans.", "warning")
        self._want(conditions=conditions, text=text.strip())

    def action_compare(self) -> None:
        """Compare the marked runs."""
        if chosen := self._chosen("compared"):
            self.app.push_screen(Compared(chosen))

    def action_curves(self) -> None:
        """Plot the curves of the marked runs together."""
        if chosen := self._chosen("laid over each other"):
            show_curves(self.app, chosen)

    def _chosen(self, what: str) -> Sequence[Run]:
        chosen = [self._known[path] for path in self.marked if path in self._known]
        if len(chosen) < 2:
            say(self.app, f"Space marks runs; two to {MAX_RUNS} can be {what}.")
            return ()
        return chosen

    def action_escape(self) -> None:
        """Remove the conditions, then return to the previous screen."""
        if self.wish.conditions:
            self._want(conditions=(), text="")
        else:
            self.dismiss(None)


def _state_first(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns with the state first, where a run's glyph and colour stand; none if none are named."""
    return ("state", *(name for name in names if name != "state")) if names else ()


def _wrong(text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        return f"{error}."
    return ""
