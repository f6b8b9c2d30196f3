"""Small tools for every part of the app: notifications, the clipboard, frame titles, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    """Show a notification for a few seconds. The text is not parsed as markup."""
    app.notify(text, severity=severity, markup=False)


def copy(app: App[Any], text: str, what: str) -> None:
    """Copy to the terminal's clipboard, and to a file, since a terminal may silently ignore it."""
    from platformdirs import user_state_path

    app.copy_to_clipboard(text)
    try:
        place = user_state_path("dstui", ensure_exists=True) / "clipboard.txt"
        write_atomic(place, text, replace=True)
    except (FileProblem, OSError):
        say(app, f"Copied {what}. If nothing arrives: tmux needs `set -g set-clipboard on`.")
    else:
        say(app, f"Copied {what}; it is also in {place}")


@contextmanager
def lend_terminal(app: App[Any]) -> Iterator[None]:
    """Leave the terminal to another program, and take it back after an exception too, as Textual's `suspend` does not."""
    problem: BaseException | None = None
    with app.suspend():
        try:
            yield
        except BaseException as error:
            problem = error
    if problem is not None:
        raise problem


ONE_LINE = str.maketrans("\t\n\r", "   ")


def label(widget: Widget, title: str, subtitle: str = "") -> None:
    """Write `title` into the top of a frame and `subtitle` into its bottom.

    Textual repaints a widget and everything in it whenever its title is set, so unchanged texts are not set again.
    """
    for name, text in (("border_title", title), ("border_subtitle", subtitle)):
        content = Content(text.translate(ONE_LINE))
        if (getattr(widget, name) or "") != content.markup:
            setattr(widget, name, content)


def in_thread(owner: MessagePump, work: Callable[[], object]) -> Thread:
    """Run work in a thread for a part of the app. An exception in it is a bug of dstui: it is reported, and the session continues."""
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
            owner.app.call_later(owner.app.notify, f"A defect of dstui: {error!r}", severity="error", markup=False)


class Latest(Generic[T]):
    """A box for one item: the app puts items, a thread takes the latest."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: list[T] = []
        self.closed = False

    def put(self, thing: T) -> None:
        """Put an item; one that was not taken yet is dropped."""
        with self._changed:
            self._held = [thing]
            self._changed.notify_all()  # one thread may take while another waits for the end

    def close(self) -> None:
        """Close the box: no item follows."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def closed_within(self, seconds: float) -> bool:
        """Wait at most this long for the box to be closed; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.closed, seconds)

    def newer(self, thing: T) -> T:
        """Return the item that was put since this one was taken; else this one."""
        with self._changed:
            return self._held.pop() if self._held else thing

    def take(self) -> T | None:
        """Wait for the next item; None if the box is closed. An item that is still in the box is returned first."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._held)
            return self._held.pop() if self._held else None
