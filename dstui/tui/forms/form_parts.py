"""The two widgets of a form: its rows, and the Input on top of the row that is being edited."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Input

from dstui.tui.forms.fields import help_for
from dstui.tui.forms.slot_grid import SlotKey, column_at, with_cursor
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row

if TYPE_CHECKING:
    from typing_extensions import Self


class FormRows(RowList):
    """The rows of the form, with the keys that act on one row."""

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
        """In a grid, the mark at the cursor."""

    def tip_at(self, x: int, y: int) -> str:  # noqa: ARG002
        """Return the help of the field under the mouse."""
        path = getattr(self.rows[y].key, "path", "") if 0 <= y < len(self.rows) else ""
        return help_for(path) if path else ""

    class Turn(Message):
        """The user wants the next or previous option of this row's field. The cursor may have moved by the time this is handled."""

        def __init__(self, key: Hashable, by: int) -> None:
            super().__init__()
            self.key, self.by = key, by

    class Clear(Message):
        """The user wants this row's field removed from the Plan, so that its default applies."""

        def __init__(self, key: Hashable) -> None:
            super().__init__()
            self.key = key

    def action_turn(self, by: int) -> None:
        """Take the next option; in a grid, toggle the mark."""
        if isinstance(self.cursor, SlotKey):
            self.action_choose()
        else:
            self.post_message(self.Turn(self.cursor, by))

    def action_sideways(self, by: int) -> None:
        """Move to the next mark of a grid; elsewhere take the next option."""
        y = self.index_of(self.cursor)
        if isinstance(self.cursor, SlotKey) and y is not None:
            last = len(self.rows[y].left) - 2
            self.column = min(max(min(self.column, last) + by, 0), last)
            self.refresh_line(y)
        else:
            self.action_turn(by)

    def on_click(self, event: events.Click) -> None:
        """Toggle the mark that was clicked; elsewhere only move the cursor."""
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
        """Return the field to its default."""
        self.post_message(self.Clear(self.cursor))


class Editor(Input):
    """The Input of the form; there is only one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,down", "close", "close", show=False),
        Binding("up", "close", "close", show=False),
    ]

    class Closed(Message):
        """Typing has ended; the text is kept."""

    def __init__(self, typed: Callable[[Editor, str], None]) -> None:
        self._typed = typed  # set before the value, which is watched
        super().__init__(compact=True, select_on_focus=False, id="editor")
        self.cursor_blink = False

    def open(self, value: str, placeholder: str) -> None:
        """Start editing this value, with the cursor at its end."""
        self.value, self.placeholder = value, placeholder
        self.cursor_position = len(value)
        self.remove_class("-wrong")
        self.display = True
        self.focus()

    def watch_value(self, value: str) -> None:
        """Notify the form at once: Input's own message arrives a frame later."""
        self._typed(self, value)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:  # noqa: ARG002
        """Repaint without a new layout, which Input does on every key (10 ms here): the size does not depend on the value."""
        return super().refresh(*regions, repaint=repaint, recompose=recompose)

    def lie(self, left: int, top: int, width: int) -> None:
        """Place the Input on these cells of the form."""
        self.styles.offset, self.styles.width = (left, top), width
        super().refresh(layout=True)

    def hide(self) -> None:
        """Hide the Input until the next field is edited."""
        self.display = False
        super().refresh(layout=True)

    def action_close(self) -> None:
        """Stop editing, and keep the text."""
        self.post_message(self.Closed())
