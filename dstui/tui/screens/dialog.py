"""What asks something over the app: a question with a few answers, or a line to type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
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
    Dialog Rows { height: auto; }
    Dialog Input { border: none; height: 1; background: $panel; padding: 0 1; margin: 1 0; }
    """


class Lines(Dialog):
    """A dialog whose text is drawn for the size of the screen, and scrolls where it has more lines."""

    BESIDE: ClassVar[int] = 0
    """Lines in the box that are not its rows."""

    @property
    def room(self) -> int:
        """Cells for text."""
        return min(WIDTH, self.app.size.width * 96 // 100 - 6) - 2

    def lines(self) -> Sequence[Row]:
        """What it says."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw it; the cursor stays where it is."""
        lines, rows = self.lines(), self.query_one(Rows)
        rows.show_rows(lines)
        rows.styles.height = max(min(len(lines), self.app.size.height * 9 // 10 - 2 - self.BESIDE), 1)

    def on_mount(self) -> None:
        """Draw it, and read or answer with the keys."""
        self.redraw()
        next(w for w in (*self.query(Input), *self.query(Rows)) if w.can_focus).focus()

    def on_resize(self) -> None:
        """Another size of the screen."""
        self.redraw()


class Ask(Lines):
    """A question; each answer has its letter. `details` are rows between the question and the answers."""

    def __init__(self, title: str, text: str, answers: Sequence[Answer], details: Sequence[Row] = ()) -> None:
        super().__init__()
        self.heading, self.text, self.answers, self.details = title, text, tuple(answers), tuple(details)

    def compose(self) -> ComposeResult:
        """The question, and its answers as rows."""
        with Vertical() as box:
            box.border_title = Content(self.heading)
            yield Rows(id="answers")

    def lines(self) -> Sequence[Row]:
        """The question and the answers; the label of an answer is the key of its row."""
        rows = [*paragraph(self.text, self.room), BLANK, *self.details]
        return [*rows, *(row((a.key, "accent"), f"  {a.label}", key=a.label) for a in self.answers)]

    def on_key(self, event: Any) -> None:
        """A letter answers."""
        for answer in self.answers:
            if event.key == answer.key:
                event.stop()
                self.dismiss(answer.value)

    @on(Rows.Chosen)
    def _chosen(self, event: Rows.Chosen) -> None:
        event.stop()
        self.dismiss(next(a.value for a in self.answers if a.label == event.key))


class Prompt(Lines):
    """One line to type. `wrong` says in a sentence why a text is no answer, "" where it is one."""

    BESIDE = 3

    def __init__(self, title: str, text: str, value: str = "", wrong: Callable[[str], str] = lambda _text: "") -> None:
        super().__init__()
        self.heading, self.text, self.value, self.wrong = title, text, value, wrong
        self._wrong_now = ""

    def compose(self) -> ComposeResult:
        """What is asked, the line, and what is wrong with it."""
        with Vertical() as box:
            box.border_title = Content(self.heading)
            rows = Rows(id="question")
            rows.can_focus = False
            yield rows
            line = Input(self.value, compact=True)
            line.cursor_blink = False
            yield line

    def lines(self) -> Sequence[Row]:
        """What is asked, and what is wrong with the answer."""
        return [*paragraph(self.text, self.room), *(paragraph(self._wrong_now, self.room, "error") if self._wrong_now else [])]

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._wrong_now = self.wrong(event.value)
        if self._wrong_now:
            self.redraw()
        else:
            self.dismiss(event.value)
