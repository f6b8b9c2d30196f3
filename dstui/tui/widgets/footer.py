"""The last line: the keys that do something here and now. Textual's Footer costs 34 ms of the first frame; this one costs one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.message import Message

from dstui.tui.keys import Key
from dstui.tui.row import Row, Span
from dstui.tui.widgets.rows import Rows


class Footer(Rows):
    """Key hints; a click on one does what the key does."""

    MARGIN = 0
    can_focus = False

    class Pressed(Message):
        """A hint was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self) -> None:
        super().__init__(id="footer")
        self._ends: list[tuple[int, Key]] = []

    def show(self, keys: Sequence[Key]) -> None:
        """As many hints as fit; the last one stands at the right edge."""
        *most, last = keys
        right = (Span(last.shown, "accent"), Span(f" {last.label}", "dim"))
        room = (self.size.width or 80) - sum(cell_len(s.text) for s in right) - 3
        pieces: list[Span] = []
        self._ends, used = [], 1
        for key in most:
            width = cell_len(key.shown) + 1 + cell_len(key.label) + 2
            if used + width > room:
                break
            pieces += [Span(key.shown, "accent"), Span(f" {key.label}  ", "dim")]
            used += width
            self._ends.append((used, key))
        self._ends.append((self.size.width, last))
        self.show_rows([Row((Span(" "), *pieces), right)])

    def on_click(self, event: events.Click) -> None:
        """Do what the hint says."""
        key = next((key for end, key in self._ends if event.x < end), None)
        if key is not None and key.action:
            self.post_message(self.Pressed(key.action))
