"""Something to read over the app; Enter on a row that stands for something chooses it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on

from dstui.tui.dialogs.dialog import ToRead
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row

WIDTH = 108
"""Cells of text at most."""


class TextViewer(ToRead):
    """Rows; closed by any key that does not scroll, with None, or with the key of the row that was chosen."""

    DEFAULT_CSS = """
    TextViewer > Vertical { width: 114; }
    TextViewer RowList { max-height: 100%; }
    """
    ROWS = "reading"
    SCROLLING = (*ToRead.SCROLLING, "enter")

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        super().__init__(title)
        self.text = rows

    def on_mount(self) -> None:
        """Show it."""
        self.rows.show_rows(self.text)
        self.rows.styles.height = len(self.text)
        self.rows.focus()

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(event.key)
