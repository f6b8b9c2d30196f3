"""What a session needs of its terminal: colours that are remembered, drawing that lets no escape sequence through, an end that is one."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.errors import NoWidget
from textual.filter import LineFilter

from dstui.tui.kit.driver import LastingDriver
from dstui.tui.kit.safe_drawing import SAFELY, together
from dstui.tui.kit.themes import DARK, LIGHT
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.settings import remember, remembered


class TerminalApp(App[int]):
    """A Textual app that outlives its terminal for as long as it needs to end, and takes nothing more once it ends."""

    CSS_PATH = Path(__file__).parent / "styles" / "app.tcss"

    def __init__(self) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        wanted = os.environ.get("TEXTUAL_THEME") or remembered().get("theme")
        self.theme = wanted if isinstance(wanted, str) and wanted in self.available_themes else DARK.name
        self.leaving = False
        self.tracebacks: list[str] = []
        """Of the faults that have ended the session."""

    def refresh_css(self, animate: bool = True) -> None:
        """Other colours: parse the styles anew. Before there is a screen, its first widget parses them anyway."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def remember_theme(self) -> None:
        """From now on another theme is one that somebody has chosen."""

        def keep(name: str) -> None:
            in_thread(self, partial(remember, "theme", name))

        self.watch(self, "theme", keep, init=False)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and the one without which nothing goes to the terminal."""
        return (together(*super().get_line_filters(), SAFELY),)

    def get_driver_class(self) -> type[Driver]:
        """Textual's own for this platform, lasting where it is that of a Unix terminal."""
        chosen = super().get_driver_class()
        return LastingDriver if chosen is LinuxDriver else chosen

    def exit(self, result: int | None = None, return_code: int = 0, message: Any = None) -> None:
        """End the app. Messages that arrive after this are dropped (`leaving`), since the widgets they are for are being removed."""
        self.leaving = True
        super().exit(result, return_code, message)

    def _handle_exception(self, error: Exception) -> None:
        """End the app, and keep the traceback for the report. Textual would print it with the values of all variables: secrets too."""
        self.tracebacks.append("".join(traceback.format_exception(error)))
        self._return_code = 1
        if self._exception is None:  # what a test's pilot raises again
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    async def on_event(self, event: events.Event) -> None:
        """What is typed after the end is for nobody, nor is a click on what has gone already."""
        if self.leaving and isinstance(event, (events.InputEvent, events.Paste)):
            return
        if not (isinstance(event, events.MouseEvent) and _has_gone(self, event)):
            await super().on_event(event)


def _has_gone(app: TerminalApp, event: events.MouseEvent) -> bool:
    """Whether what is seen at this place was removed since the last frame, which Textual does not expect."""
    with suppress(NoWidget):
        return app.get_widget_at(event.x, event.y)[0].parent is None
    return False
