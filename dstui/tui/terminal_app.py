"""The app's relation to its terminal: remembered theme, safe output, and an exit that is always reported.

An internal error ends the session with a message, and its traceback goes to a file in the user's state folder.
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.errors import NoWidget
from textual.filter import LineFilter

from dstui.base.output import say
from dstui.base.regular_files import append_regular
from dstui.tui.kit.drawing import SAFELY, combine_filters
from dstui.tui.kit.driver import LastingDriver
from dstui.tui.kit.styles import ANSI_THEMES, THEMES
from dstui.tui.kit.textual_mends import mend_textual
from dstui.tui.kit.typed_ahead import TypedAhead
from dstui.tui.session.settings import setting


class ThemedStyles(Stylesheet):
    """Styles of which each source is parsed once per theme.

    Textual parses all of them again for each kind of dialog, and twice for a screen that is new after a change of theme: 30 ms.
    """

    def set_variables(self, variables: dict[str, str]) -> None:
        """Take other colours; the same ones leave the cache of what was parsed."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse what is not cached for these colours."""
        self.parse()


class TerminalApp(App[int]):
    """A Textual app that outlives its terminal for as long as it needs to exit, and ignores input while it exits."""

    CSS_PATH = Path(__file__).parent / "styles" / "app.tcss"

    def __init__(self) -> None:
        mend_textual()
        self._variables: dict[str, dict[str, str]] = {}
        super().__init__()
        self.stylesheet: Stylesheet = ThemedStyles(variables=self.get_css_variables())
        for theme in (*THEMES, *ANSI_THEMES):
            self.register_theme(theme)
        # Textual copies the list of all themes for each line that it paints. No theme is registered later, so answers may be kept; a method
        # in the class could not be cached without also caching the application.
        self.get_theme = lru_cache(self.get_theme)  # type: ignore[method-assign]
        wanted = os.environ.get("TEXTUAL_THEME") or setting("theme")
        self.theme = wanted if wanted in self.available_themes else THEMES[0].name
        self.refresh_css()  # Textual has read $TEXTUAL_THEME before our themes were registered, and takes the same name for no change
        self.leaving = False
        self._typed_ahead = TypedAhead(self, partial(_deliver, self, super().on_event))
        self.tracebacks: list[str] = []
        """The tracebacks of errors that have ended the session."""

    def refresh_css(self, animate: bool = True) -> None:
        """Parse the styles again for new colours. Before the first screen exists this is unnecessary."""
        if self.screen_stack:
            super().refresh_css(animate)
            if self.screen not in self.children:  # the palette is a system screen: Textual styles only those below it
                self.stylesheet.update(self.screen, animate=animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_css_variables(self) -> dict[str, str]:
        """Return the variables of the theme. They are computed once: Textual asks several times before the first frame."""
        name = self.current_theme.name  # not `theme`, which may name one of ours before it is registered
        if name not in self._variables:
            variables = super().get_css_variables()
            self._variables[name] = {"frame": f"{variables['foreground']} 20%", **variables}
        self.theme_variables = self._variables[name]
        return self._variables[name]

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters and the one that removes control characters."""
        return (combine_filters(*super().get_line_filters(), SAFELY),)

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver for this platform; LastingDriver on a Unix terminal."""
        chosen = super().get_driver_class()
        return LastingDriver if chosen is LinuxDriver else chosen

    def exit(self, result: int | None = None, return_code: int = 0, message: Any = None) -> None:
        """Exit the app. Later messages are dropped (`leaving`), since their widgets are being removed."""
        self.leaving = True
        super().exit(result, return_code, message)

    def _handle_exception(self, error: Exception) -> None:
        """Exit, and keep the traceback for the report. Textual would print it with the values of all variables, secrets included."""
        self.tracebacks.append("".join(traceback.format_exception(error)))
        self._return_code = 1
        if self._exception is None:  # raised again by the pilot of a test
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    async def on_event(self, event: events.Event) -> None:
        """Deliver input in order, each key once the one before has had its effect."""
        if isinstance(event, (events.InputEvent, events.Paste)) and not event.is_forwarded:
            await self._typed_ahead.take(event)
        else:
            await super().on_event(event)


def themes() -> frozenset[str]:
    """Return the names of the available themes."""
    from textual.theme import BUILTIN_THEMES

    return frozenset(BUILTIN_THEMES) | {theme.name for theme in THEMES}


async def _deliver(app: TerminalApp, handle: Callable[[events.Event], Awaitable[None]], event: events.Event) -> None:
    """Handle input, except after the exit has begun, and clicks on widgets that are gone."""
    if not app.leaving and not (isinstance(event, events.MouseEvent) and _has_gone(app, event)):
        await handle(event)


def _has_gone(app: TerminalApp, event: events.MouseEvent) -> bool:
    """Return whether the widget at this position was removed since the last frame, which Textual does not expect."""
    with suppress(NoWidget):
        return app.get_widget_at(event.x, event.y)[0].parent is None
    return False


KEPT = 20
"""Reports that are kept; the oldest are deleted."""


def run_reported(app: TerminalApp) -> int:
    """Run the app and return the exit status. After a crash, print what failed and where its traceback is."""
    try:
        app.run()
    except (Exception, SystemExit):  # past Textual, which has restored the terminal anyway
        app.tracebacks.append(traceback.format_exc())
    if app.tracebacks:
        _report(app.tracebacks)
    return app.return_code or int(app.return_code is None or bool(app.tracebacks))


def _report(tracebacks: list[str]) -> None:
    what = tracebacks[0].rstrip().rpartition("\n")[2]
    text = "\n".join((_about(), *tracebacks))
    try:
        say(f"a defect of dstui has ended the session: {what}. The traceback is in {_write(text)}")
    except OSError as error:
        say(f"a defect of dstui has ended the session, and its report could not be written ({error.strerror}):\n{text}")


def _write(text: str) -> Path:
    """Open a file that only the owner can read: an exception's message may contain anything. Raises OSError."""
    from platformdirs import user_state_path

    folder = user_state_path("dstui") / "faults"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}.txt")
    append_regular(file, text.encode(errors="backslashreplace"))
    for old in sorted(folder.glob("*.txt"))[:-KEPT]:
        with suppress(OSError):
            old.unlink()
    return file


def _about() -> str:
    """Return additional information for a bug report."""
    from importlib.metadata import version  # imports email and zipfile, which takes 3 % of the time to the first frame

    versions = ", ".join(f"{name} {version(name)}" for name in ("dstui", "textual"))
    terminal = " ".join(f"{name}={os.environ.get(name, '')}" for name in ("TERM", "LANG", "LC_ALL", "TMUX", "SSH_TTY"))
    return f"{versions}, Python {platform.python_version()}, {platform.platform()}\n{terminal}\n"
