"""Base classes of dialogs: a text to read, a question with a few answers, a line to type.

Two answers may arrive in one read of a slow line, and an answer may still arrive after the dialog was closed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from dstui.tui.kit.current_size import CurrentSizeScreen
from dstui.tui.kit.footer import Footer
from dstui.tui.kit.keys import ACTIONS, CHOOSING, LINE, PANES, READING, valid
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, GLYPHS, Row, Span, paragraph, row

T = TypeVar("T")


class Over(CurrentSizeScreen[T]):
    """A dialog or a screen on top of another one. Its widgets are created with it and kept as attributes, so they can be drawn at any time.

    Textual searches for CSS only along the first base: a class with another base must list this one last.
    """

    PANE: ClassVar[str] = ""
    """Its pane in the table of keys."""

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        self.footer = Footer()

    def offers(self, action: str) -> bool:
        """Return whether the table of keys has an action for this screen."""
        return self.PANE in PANES.get(action, ())

    def can(self, action: str) -> bool:  # noqa: ARG002 - some screens have actions that need an object
        """Return whether an action would have an effect now."""
        return True

    @property
    def is_topmost(self) -> bool:
        """Return whether it is shown, with nothing on top of it."""
        return self.app.screen_stack[-1:] == [self]

    def repeats(self, other: Screen[Any]) -> bool:
        """Return whether it would show the same as another screen."""
        return type(other) is type(self)

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close it with this result. Does nothing if it is closed already or has another dialog on top: callers need not check."""
        if not self.is_topmost:
            return AwaitComplete()
        self.app.call_later(self.app.set_timer, PAUSE, gc.collect)  # its widgets refer to each other; a timer of its own would hold them
        return super().dismiss(result)

    @on(events.Mount)
    @on(RowList.Resized)
    def show_keys(self) -> None:
        """Show the keys that have an effect now in the footer."""
        self.footer.show(valid(self.PANE, frozenset(filter(self.can, ACTIONS))))


PAUSE = 1.0
"""Seconds from the closing of a screen to the collection of garbage: 10 ms each time instead of 100 ms and many mebibytes after an hour."""
BOX = 68
"""The width of most dialogs in cells."""
FULL = 10_000
"""The width of a dialog that takes as much of the screen as a dialog may."""
WIDTH = BOX - 6
"""Cells for text, without the frame, the padding and a scroll bar."""


class Answer(NamedTuple):
    """One answer: its key, its text, and the value that it stands for."""

    key: str
    label: str
    value: Any


class Dialog(ModalScreen[Any], Over[Any]):
    """Rows in a box in the middle of the screen. Escape closes it with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close", show=False)]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%; }
    Dialog > Vertical {
        max-width: 96%; height: auto; max-height: 90%;
        border: round $primary; background: $background; padding: 0 1;
    }
    Dialog RowList { height: auto; }
    Dialog Input { border: none; height: 1; background: $panel; padding: 0 1; margin: 1 2; }
    Dialog Footer { dock: bottom; height: 1; }
    """
    PANE = CHOOSING
    ROWS: ClassVar[str] = ""
    """The id of its rows."""
    BOX: ClassVar[int] = BOX
    """The width in cells, if the screen has as many."""

    def __init__(self, heading: str) -> None:
        super().__init__()
        self.heading, self.rows = heading, self.made_rows()

    def repeats(self, other: Screen[Any]) -> bool:
        """Return whether it would show the same as another screen."""
        return super().repeats(other) and isinstance(other, Dialog) and other.heading == self.heading

    def made_rows(self) -> RowList:
        """Return the widget for its rows, not drawn yet."""
        return RowList(id=self.ROWS)

    def compose(self) -> ComposeResult:
        """Compose the box, and the footer at the bottom of the screen."""
        with Vertical() as box:
            box.border_title, box.styles.width = Content(self.heading), self.BOX
            yield from self.inside()
        yield self.footer

    def inside(self) -> ComposeResult:
        """Yield the widgets in the box."""
        yield self.rows


class Lines(Dialog):
    """A dialog whose rows are laid out for the width of the screen, and scroll if they do not fit."""

    BESIDE: ClassVar[int] = 0
    """Lines in the box that are not its rows."""

    @property
    def room(self) -> int:
        """Return the width of its text, in cells."""
        return min(self.BOX, self.app.size.width * 96 // 100) - 8

    def lines(self) -> Sequence[Row]:
        """Return its rows; none by default."""
        return ()

    def redraw(self) -> None:
        """Draw the rows; the cursor keeps its position."""
        lines = self.lines()
        self.rows.show_rows(lines)
        most = (self.app.size.height - 1) * 9 // 10 - 2 - self.BESIDE  # the last line is the footer
        self.rows.styles.height = max(min(len(lines), most), 1)

    def on_mount(self) -> None:
        """Draw the rows and give them the focus."""
        self.redraw()
        for widget in (*self.query(Input), *self.query(RowList)):  # a key may have closed it before it was drawn
            if widget.can_focus:
                widget.focus()
                break

    def on_resize(self) -> None:
        """Draw the rows for the new size."""
        self.redraw()


class ToRead(Dialog):
    """A text that scrolls with the arrow keys; any other key closes it with None."""

    PANE = READING
    SCROLLING: ClassVar[tuple[str, ...]] = ("up", "down", "pageup", "pagedown", "home", "end", "j", "k")

    def on_key(self, event: events.Key) -> None:
        """Close on any key that does not scroll."""
        if event.key not in self.SCROLLING:
            event.stop()
            self.dismiss(None)


class Ask(Lines):
    """A question. Each answer has a letter; `details` are rows between the question and the answers."""

    ROWS = "answers"

    def __init__(self, title: str, text: str, answers: Sequence[Answer], details: Sequence[Row] = ()) -> None:
        super().__init__(title)
        self.text, self.answers, self.details = text, tuple(answers), tuple(details)

    def lines(self) -> Sequence[Row]:
        """Return the question and the answers; the label of an answer is the key of its row."""
        rows = [*paragraph(self.text, self.room), BLANK, *self.details]
        return [*rows, *(row((a.key, "accent"), f"  {a.label}", key=a.label) for a in self.answers)]

    def on_key(self, event: events.Key) -> None:
        """Answer with a letter."""
        self._give(event, lambda answer: answer.key == event.key)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        self._give(event, lambda answer: answer.label == event.key)

    def _give(self, event: events.Key | RowList.Chosen, meant: Callable[[Answer], bool]) -> None:
        """Close with the answer, if it still exists: the answers may have changed since the key was pressed."""
        for answer in filter(meant, self.answers):
            event.stop()
            self.dismiss(answer.value)


class Prompt(Lines):
    """One line to type. `wrong` returns why a text is not accepted, or ""."""

    PANE, ROWS, BESIDE = LINE, "question", 3

    def __init__(self, title: str, text: str, value: str = "", wrong: Callable[[str], str] = lambda _text: "") -> None:
        super().__init__(title)
        self.text, self.wrong = text, wrong
        self.line = Input(value, compact=True)
        self._wrong_now = ""

    def inside(self) -> ComposeResult:
        """Yield the question with the error, and the input."""
        self.rows.can_focus = self.line.cursor_blink = False
        yield self.rows
        yield self.line

    def lines(self) -> Sequence[Row]:
        """Return the question, and what is wrong with the text."""
        mark = (Span(f"{GLYPHS['error']} ", "error"),)
        wrong = paragraph(self._wrong_now, self.room, "error", first=mark) if self._wrong_now else []
        return [*paragraph(self.text, self.room), *wrong]

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._wrong_now = self.wrong(event.value)
        if self._wrong_now:
            self.redraw()
        else:
            self.dismiss(event.value)
