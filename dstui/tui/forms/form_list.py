"""The rows of a form: what the keys and the mouse ask of the one under the cursor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from dstui.tui.forms.slot_grid import SlotKey, column_at, with_cursor
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row


class FormRows(RowList):
    """The rows of the form, with the keys that act on one of them."""

    KEEPS_POINTER = True

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "turn(1)", "next value", show=False),
        Binding("right", "sideways(1)", "next value", show=False),
        Binding("left", "sideways(-1)", "value before", show=False),
        Binding("delete,backspace,d", "clear", "default", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="form-rows")
        self.column = 0
        """In a grid, the mark that the cursor is on."""

    class Turn(Message):
        """Take the next or previous answer of the field of this row. By the time that somebody does, the cursor may be elsewhere."""

        def __init__(self, key: Hashable, by: int) -> None:
            super().__init__()
            self.key, self.by = key, by

    class Clear(Message):
        """Take the field of this row out of the Plan: its default holds."""

        def __init__(self, key: Hashable) -> None:
            super().__init__()
            self.key = key

    def action_turn(self, by: int) -> None:
        """Ask for the next answer; in a grid, turn the mark over."""
        if isinstance(self.cursor, SlotKey):
            self.action_choose()
        else:
            self.post_message(self.Turn(self.cursor, by))

    def action_sideways(self, by: int) -> None:
        """To the next mark of a grid; elsewhere ask for the next answer."""
        y = self.index_of(self.cursor)
        if isinstance(self.cursor, SlotKey) and y is not None:
            last = len(self.rows[y].left) - 2
            self.column = min(max(min(self.column, last) + by, 0), last)
            self.refresh_line(y)
        else:
            self.action_turn(by)

    def on_click(self, event: events.Click) -> None:
        """A click on a mark of a grid is for this one; beside the marks it only moves the cursor."""
        y = event.y - self.gutter.top + self.scroll_offset.y
        shown = self.rows[y] if 0 <= y < len(self.rows) else BLANK
        if isinstance(shown.key, SlotKey):
            column = column_at(shown, event.x - self.gutter.left - self.MARGIN)
            if column is None:
                event.prevent_default()
                self.cursor = shown.key
            else:
                self.column = column

    def _segments(self, shown: Row, here: bool, back: Style, width: int) -> list[Segment]:
        if here and self.has_focus and isinstance(shown.key, SlotKey):
            shown = with_cursor(shown, self.column)
        return super()._segments(shown, here, back, width)

    def action_clear(self) -> None:
        """Ask for the default."""
        self.post_message(self.Clear(self.cursor))
