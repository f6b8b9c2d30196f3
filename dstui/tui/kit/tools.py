"""Small tools that every part of the app calls: a note, the clipboard, a frame's title, a thread and what it is handed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

from textual.app import App
from textual.content import Content
from textual.message_pump import MessagePump
from textual.notifications import SeverityLevel
from textual.widget import Widget

from dstui.base.files import FileProblem, write_atomic

T = TypeVar("T")


def say(app: App[Any], text: str, severity: SeverityLevel = "information") -> None:
    """A note at the corner for a few seconds. It is text: nothing in it is markup."""
    app.notify(text, severity=severity, markup=False)


def copy(app: App[Any], text: str, what: str) -> None:
    """To the terminal's clipboard, and to a file, since a terminal may drop it without a word."""
    from platformdirs import user_state_path

    app.copy_to_clipboard(text)
    try:
        place = user_state_path("dstui", ensure_exists=True) / "clipboard.txt"
        write_atomic(place, text, replace=True)
    except (FileProblem, OSError):
        say(app, f"Copied {what}. If nothing arrives: tmux needs `set -g set-clipboard on`.")
    else:
        say(app, f"Copied {what}; it is also in {place}")


ONE_LINE = str.maketrans("\t\n\r", "   ")


def label(widget: Widget, title: str, subtitle: str = "") -> None:
    """Write `title` into the top of a frame and `subtitle` into its bottom.

    Textual paints a widget anew, with all that lies in it, whenever a title is set: so only what differs is.
    """
    for name, text in (("border_title", title), ("border_subtitle", subtitle)):
        content = Content(text.translate(ONE_LINE))
        if (getattr(widget, name) or "") != content.markup:
            setattr(widget, name, content)


def in_thread(owner: MessagePump, work: Callable[[], object]) -> Thread:
    """Start this work for a part of the app. What it raises is a fault of dstui: it is told, and the session goes on."""
    thread = Thread(target=_run, args=(owner, work), daemon=True)
    thread.start()
    return thread


def afterwards(owner: MessagePump, work: Callable[[], T], then: Callable[[T], object]) -> None:
    """Do what may wait for a disk in a thread; `then` gets what it returned, in the app again."""
    in_thread(owner, lambda: owner.call_later(then, work()))


def _run(owner: MessagePump, work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        with suppress(Exception):  # the app may have ended
            owner.app.call_later(owner.app.notify, f"A fault of dstui: {error!r}", severity="error", markup=False)


class Latest(Generic[T]):
    """A box for one thing. The app puts, a thread takes."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: list[T] = []
        self.closed = False

    def put(self, thing: T) -> None:
        """This one next; what was not taken yet is forgotten."""
        with self._changed:
            self._held = [thing]
            self._changed.notify_all()  # one thread may take while another waits for the end

    def close(self) -> None:
        """Nothing will be put any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def closed_within(self, seconds: float) -> bool:
        """Wait so long, or until nothing will be put any more, and say whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.closed, seconds)

    def newer(self, thing: T) -> T:
        """Return what was put since this was taken; else this."""
        with self._changed:
            return self._held.pop() if self._held else thing

    def take(self) -> T | None:
        """Wait for the next one; None when there will be none. What is there at the end is still handed over."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._held)
            return self._held.pop() if self._held else None
