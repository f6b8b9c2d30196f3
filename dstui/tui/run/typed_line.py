"""The lines under the log in which a filter or a search is typed. They apply while typing; ↑ recalls earlier ones of the session."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

PAUSE = 0.15
"""Seconds after a key until the text is applied: opening a log takes longer than the gap between a fast typist's keys."""
FILTER_EXAMPLE = "loss|eval  !step  r0-3  level:warn  host:h2  since:10m"
EXPRESSION, TEXT = "an expression: step 39[0-4]|nan   (Tab: plain text)", "plain text   (Tab: an expression)"


class TypedLine(Input):
    """One line, hidden while nothing is typed. Posts Edited and Closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "clear", show=False),
        Binding("up", "recall(-1)", "the one before", show=False),
        Binding("down", "recall(1)", "the next one", show=False),
    ]

    class Edited(Message):
        """The text has changed."""

        def __init__(self, line: TypedLine, text: str) -> None:
            super().__init__()
            self.line, self.text = line, text

    class Closed(Edited):
        """Typing has ended with this text, or with none."""

    def __init__(self, name: str, placeholder: str) -> None:
        """Create the line. `name`: its id, and its pane in the table of keys."""
        super().__init__(compact=True, select_on_focus=False, id=name, placeholder=placeholder, classes="typed-line")
        self.cursor_blink = self.display = False
        self._earlier: list[str] = []
        self._recalled = 0
        self._waiting: Timer | None = None

    def open(self, text: str, *, suggested: bool = False) -> None:
        """Open the line with the current text. One that is only suggested is selected: typing replaces it."""
        self._recalled = len(self._earlier)
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.display = True
        self.focus()
        self.app.clear_notifications()  # which would cover the line
        if suggested:
            self.action_select_all()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._stop_waiting()
        self._waiting = self.set_timer(PAUSE, self.say_again)

    def say_again(self) -> None:
        """Apply the text again."""
        self.post_message(self.Edited(self, self.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = self.value.strip()
        if text and text not in self._earlier[-1:]:
            self._earlier.append(text)
        self._close(text)

    def action_clear(self) -> None:
        """Clear the text, and close."""
        self._close("")

    def action_recall(self, by: int) -> None:
        """Recall an earlier text; after the last one the line is empty."""
        self._recalled = min(max(self._recalled + by, 0), len(self._earlier))
        self.value = (*self._earlier, "")[self._recalled]
        self.cursor_position = len(self.value)

    def _close(self, text: str) -> None:
        self._stop_waiting()
        self.display = False
        self.post_message(self.Closed(self, text))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = None


class SearchLine(TypedLine):
    """The line of the search: a regular expression, or plain text."""

    def __init__(self) -> None:
        super().__init__("search", EXPRESSION)
        self.regex = True

    def toggle(self) -> None:
        """Toggle between plain text and regular expression."""
        self.regex = not self.regex
        self.placeholder = EXPRESSION if self.regex else TEXT
        self.say_again()
