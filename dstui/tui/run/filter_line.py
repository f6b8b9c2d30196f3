"""The input below the log for a filter. It is applied while it is typed; ↑ recalls earlier filters of the session."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

PAUSE = 0.15
"""Seconds after a key until the filter is applied: opening a log takes longer than a fast typist's next key."""
PLACEHOLDER = "loss|eval  !step  r0-3  level:warn  host:h2  since:10m"


class FilterLine(Input):
    """The input; hidden while no filter is typed. Posts Edited and Closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "clear", show=False),
        Binding("up", "recall(-1)", "filter before", show=False),
        Binding("down", "recall(1)", "next filter", show=False),
    ]

    class Edited(Message):
        """The text of the filter has changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Edited):
        """Typing has ended: this filter stays, or none."""

    def __init__(self) -> None:
        super().__init__(compact=True, select_on_focus=False, id="filter", placeholder=PLACEHOLDER)
        self.cursor_blink = self.display = False
        self._earlier: list[str] = []
        self._recalled = 0
        self._waiting: Timer | None = None

    def open(self, text: str) -> None:
        """Start typing, with the current filter."""
        self._recalled = len(self._earlier)
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.display = True
        self.focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._stop_waiting()
        self._waiting = self.set_timer(PAUSE, lambda: self.post_message(self.Edited(self.value)))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = self.value.strip()
        if text and text not in self._earlier[-1:]:
            self._earlier.append(text)
        self._close(text)

    def action_clear(self) -> None:
        """Remove the filter, and close the input."""
        self._close("")

    def action_recall(self, by: int) -> None:
        """Take an earlier filter; after the latest one, an empty line."""
        self._recalled = min(max(self._recalled + by, 0), len(self._earlier))
        self.value = (*self._earlier, "")[self._recalled]
        self.cursor_position = len(self.value)

    def _close(self, text: str) -> None:
        self._stop_waiting()
        self.display = False
        self.post_message(self.Closed(text))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = None
