"""The last line, with the keys that are enabled now. Textual's Footer takes 34 ms of the first frame, this one 1 ms."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.message import Message

from dstui.tui.kit.keys import PINNED, KeyHint
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span


class Footer(RowList):
    """Key hints; a click on one triggers the key's action."""

    MARGIN = 0
    can_focus = False

    class Pressed(Message):
        """A hint was clicked."""

        def __init__(self, key: KeyHint) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__(id="footer")
        self._ends: list[tuple[int, KeyHint]] = []

    def show(self, keys: Sequence[KeyHint]) -> None:
        """Show as many hints as fit; pinned hints are at the right edge."""
        width = self.size.width or 80
        pinned = [k for k in keys if k.hint >= PINNED]
        room = width - sum(_width(k) for k in pinned) - 2
        self._ends, used, chosen = [], 1, []
        for key in (k for k in keys if k.hint < PINNED):
            if used + _width(key) <= room:
                used += _width(key)
                chosen.append(key)
                self._ends.append((used, key))
        at = width - 1 - sum(_width(k) for k in pinned)
        for key in pinned:
            at += _width(key)
            self._ends.append((at, key))
        self.show_rows([Row((Span(" "), *_spans(chosen)), tuple(_spans(pinned)))])

    def tip_at(self, x: int, y: int) -> str:  # noqa: ARG002
        """Return what the key under the mouse does."""
        key = self._key_at(x)
        return key.help if key is not None else ""

    def _key_at(self, x: int) -> KeyHint | None:
        return next((key for end, key in self._ends if x < end), None)

    def on_click(self, event: events.Click) -> None:
        """Trigger the action of the hint."""
        key = self._key_at(event.x)
        if key is not None and key.action:
            self.post_message(self.Pressed(key))


def _width(key: KeyHint) -> int:
    return cell_len(key.in_footer) + 1 + cell_len(key.label) + 2


def _spans(keys: Sequence[KeyHint]) -> list[Span]:
    return [span for key in keys for span in (Span(key.in_footer, "accent"), Span(f" {key.label}  ", "dim"))]
