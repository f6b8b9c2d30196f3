"""A list from which one is chosen by typing a part of its name, or with the arrows."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from dstui.tui.dialogs.dialog import Lines
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row

SHOWN = 14
"""Lines of the list at least, so that the box keeps its size while one types."""


class Matches(RowList):
    """What matches; the line that Enter takes is pointed at, while the focus is where the typing is."""

    KEEPS_POINTER = True


class Pick(Lines):
    """Type a part of a name; Enter takes what is pointed at. The result is the key of that row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("up", "move(-1)", "up", show=False, priority=True),
    ]

    ROWS, BESIDE = "found", 3

    def __init__(self, title: str, placeholder: str) -> None:
        super().__init__(title)
        self.placeholder, self.text = placeholder, ""

    def made_rows(self) -> RowList:
        """What matches."""
        return Matches(id=self.ROWS)

    def inside(self) -> ComposeResult:
        """The line to type, and what matches."""
        line = Input(placeholder=self.placeholder, compact=True)
        line.cursor_blink = False
        yield line
        yield self.rows

    def matching(self, text: str) -> list[Row]:
        """What is chosen from, as far as it matches what was typed. Each dialog has its own."""
        raise NotImplementedError  # no ABC: Textual's screens have a metaclass of their own

    def lines(self) -> list[Row]:
        """What matches: everything, until something is typed."""
        found = self.matching(self.text)
        return [*found, *[BLANK] * (SHOWN - len(found))]

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.text = event.value
        self.redraw()

    def action_move(self, by: int) -> None:
        """Move in what was found, while typing goes on."""
        self.rows.action_move(by)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(self.rows.cursor)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(event.key)
