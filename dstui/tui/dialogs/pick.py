"""Choose from a list by typing part of a name: a setting, or a host of the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from dstui.base.text import one_line
from dstui.tui.dialogs.dialog import FULL, Lines
from dstui.tui.forms.fields import help_for
from dstui.tui.forms.steps import STEPS
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row, fit, row
from dstui.tui.session.state import State

SHOWN = 14
"""The minimum number of lines, so that the box keeps its size during typing."""


class Matches(RowList):
    """The matching rows. Enter takes the row at the cursor while the input keeps the focus."""

    KEEPS_POINTER = True


class Pick(Lines):
    """Type part of a name; Enter takes the row at the cursor. Result: the key of that row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("up", "move(-1)", "up", show=False, priority=True),
    ]

    ROWS, BESIDE, BOX = "found", 3, 100

    def __init__(self, title: str, placeholder: str) -> None:
        super().__init__(title)
        self.placeholder, self.text = placeholder, ""

    def made_rows(self) -> RowList:
        """Return the widget for the matching rows."""
        return Matches(id=self.ROWS)

    def inside(self) -> ComposeResult:
        """Yield the input and the matching rows."""
        line = Input(placeholder=self.placeholder, compact=True)
        line.cursor_blink = False
        yield line
        yield self.rows

    def matching(self, text: str) -> list[Row]:
        """Return the rows that match the typed text. Each subclass has its own."""
        raise NotImplementedError  # not an ABC, because Textual's screens have a metaclass of their own

    def lines(self) -> list[Row]:
        """Return the matching rows; all rows until something is typed."""
        found = self.matching(self.text)
        if self.text.strip() and not found:
            found = [row((fit(f"There is none with {one_line(self.text.strip())}", self.room).rstrip(), "dim"))]
        return [*found, *[BLANK] * (SHOWN - len(found))]

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        """Show what matches now, with the cursor on the first."""
        event.stop()
        self.text = event.value
        self.redraw()
        self.rows.action_edge(-1)

    def action_move(self, by: int) -> None:
        """Move the cursor in the rows while the input keeps the focus."""
        self.rows.action_move(by)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(self.rows.cursor)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(event.key)


class Find(Pick):
    """Find a setting. Result: a dotted path of the Plan."""

    def __init__(self, state: State) -> None:
        super().__init__("Find a setting", "a part of its name: bucket, warmup, nvme…")
        self.entries = _entries(state)

    def matching(self, text: str) -> list[Row]:
        """Return the settings with the text in their name or help."""
        return matching(self.entries, text, self.room)


def _entries(state: State) -> list[tuple[str, str]]:
    """Return (path, label) of every setting, those with a form field first."""
    from dstui.plan.catalogue import KEYS

    forms = [(f.path, f"{step.title}: {f.label}") for step in STEPS for f in step.fields(state) if f.help is None and "." in f.path]
    known = {path for path, _ in forms}
    return forms + [(f"deepspeed.{p}", "") for p in KEYS if f"deepspeed.{p}" not in known]


def matching(entries: list[tuple[str, str]], text: str, width: int, limit: int = 200) -> list[Row]:
    """Return the entries in which every word of `text` occurs, for a width in cells. A long name keeps its end, where names differ.

    Those of which a part begins with the text come first: of "optim" the optimizer's, then zero_optimization's.
    """
    words, room = text.lower().split(), width * 6 // 10
    rows: list[Row] = []
    for path, label in sorted(entries, key=lambda entry: f".{words[0]}" not in f".{entry[0].lower()}") if words else entries:
        name = path.removeprefix("deepspeed.")
        if all(w in f"{name} {label}".lower() for w in words) or (len(words) == 1 and len(text) > 3 and words[0] in help_for(path).lower()):
            rows.append(row((fit(name, room, end=True), "name"), (f"  {fit(label, width - room - 2)}", "dim"), key=path))
            if len(rows) == limit:
                break
    return rows


AGAIN = 1.0
"""Seconds between two updates of the hosts, whose states change."""


class Hosts(Pick):
    """Choose a host. Result: the key of the chosen row."""

    BOX = FULL

    def __init__(self, choices: Callable[[str, int], list[Row]]) -> None:
        """Create the dialog. `choices` returns the rows of the hosts that match a text, for a width in cells."""
        super().__init__("Hosts", "a part of its name")
        self._choices = choices

    def on_mount(self) -> None:
        """Draw the hosts, and refresh them while the dialog is open."""
        super().on_mount()
        self.set_interval(AGAIN, self.redraw)

    def matching(self, text: str) -> list[Row]:
        """Return the hosts with the text in their name."""
        return self._choices(text, self.room)
