"""Something to read over the app; Enter on a row that stands for something chooses it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from dstui.tui.row import Row
from dstui.tui.screens.dialog import Dialog
from dstui.tui.widgets.rows import Rows

WIDTH = 108
"""Cells of text at most."""
SCROLLING = ("up", "down", "pageup", "pagedown", "home", "end", "j", "k", "enter")


class Reading(Dialog):
    """Rows; closed by any key that does not scroll, with None, or with the key of the row that was chosen."""

    DEFAULT_CSS = """
    Reading > Vertical { width: 114; }
    Reading Rows { max-height: 100%; }
    """

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        super().__init__()
        self.heading, self.rows = title, rows

    def compose(self) -> ComposeResult:
        """The text."""
        with Vertical() as box:
            box.border_title = Content(self.heading)
            yield Rows(id="reading")

    def on_mount(self) -> None:
        """Show it."""
        rows = self.query_one(Rows)
        rows.show_rows(self.rows)
        rows.styles.height = len(self.rows)
        rows.focus()

    def on_key(self, event: events.Key) -> None:
        """Close with whatever does not scroll; what is typed while it closes is for nobody."""
        if event.key not in SCROLLING and self.is_current:
            event.stop()
            self.dismiss(None)

    @on(Rows.Chosen)
    def _chosen(self, event: Rows.Chosen) -> None:
        event.stop()
        if self.is_current:
            self.dismiss(event.key)
