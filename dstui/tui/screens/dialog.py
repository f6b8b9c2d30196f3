"""What asks something over the app: a question with a few answers, or a line to type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from dstui.tui.row import BLANK, Row, paragraph, row
from dstui.tui.widgets.rows import Rows

WIDTH = 62
"""Cells for text, beside the frame, the padding and a scroll bar."""


class Answer(NamedTuple):
    """One answer: the key that gives it, what it says, and what it means to the asker."""

    key: str
    label: str
    value: Any


class Dialog(ModalScreen[Any]):
    """A box in the middle of the screen; escape closes it with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close", show=False)]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%; }
    Dialog > Vertical {
        width: 68; max-width: 96%; height: auto; max-height: 90%;
        border: round $primary; background: $background; padding: 0 1;
    }
    Dialog Rows { height: auto; max-height: 24; }
    Dialog Input { border: none; height: 1; background: $panel; padding: 0 1; margin: 1 0; }
    """


class Ask(Dialog):
    """A question; each answer has its letter. `details` are rows between the question and the answers."""

    def __init__(self, title: str, text: str, answers: Sequence[Answer], details: Sequence[Row] = ()) -> None:
        super().__init__()
        self.heading, self.text, self.answers, self.details = title, text, tuple(answers), tuple(details)

    def compose(self) -> ComposeResult:
        """The question, and its answers as rows."""
        with Vertical() as box:
            box.border_title = self.heading
            yield Rows(id="answers")

    def on_mount(self) -> None:
        """Show them, with the cursor on the first answer."""
        rows: list[Row] = [*paragraph(self.text, WIDTH - 2), BLANK, *self.details]
        rows += [row((a.key, "accent"), f"  {a.label}", key=a.key) for a in self.answers]
        answers = self.query_one(Rows)
        answers.show_rows(rows)
        answers.styles.height = len(rows)
        answers.focus()

    def on_key(self, event: Any) -> None:
        """A letter answers."""
        for answer in self.answers:
            if event.key == answer.key:
                event.stop()
                self.dismiss(answer.value)

    @on(Rows.Chosen)
    def _chosen(self, event: Rows.Chosen) -> None:
        event.stop()
        self.dismiss(next(a.value for a in self.answers if a.key == event.key))


class Prompt(Dialog):
    """One line to type. `wrong` says in a sentence why a text is no answer, "" where it is one."""

    def __init__(self, title: str, text: str, value: str = "", wrong: Callable[[str], str] = lambda _text: "") -> None:
        super().__init__()
        self.heading, self.text, self.value, self.wrong = title, text, value, wrong

    def compose(self) -> ComposeResult:
        """What is asked, the line, and what is wrong with it."""
        with Vertical() as box:
            box.border_title = self.heading
            yield Rows(id="question")
            line = Input(self.value, compact=True)
            line.cursor_blink = False
            yield line

    def on_mount(self) -> None:
        """Start typing at once."""
        self._say("")
        self.query_one(Input).focus()

    def _say(self, wrong: str) -> None:
        rows = [*paragraph(self.text, WIDTH - 2), *paragraph(wrong, WIDTH - 2, "error")] if wrong else paragraph(self.text, WIDTH - 2)
        question = self.query_one(Rows)
        question.can_focus = False
        question.show_rows(rows)
        question.styles.height = max(len(rows), 1)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        if wrong := self.wrong(event.value):
            self._say(wrong)
        else:
            self.dismiss(event.value)
