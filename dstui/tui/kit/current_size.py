"""The base of all screens: one that is laid out for the size of the terminal as it is now."""

from __future__ import annotations

from typing import TypeVar

from textual import events, on
from textual.screen import Screen

T = TypeVar("T")


class CurrentSizeScreen(Screen[T]):
    """A screen that ignores sizes which the terminal no longer has.

    Each layout for a new size posts that size to the screen again. Two sizes that wait at once would follow each other forever.
    """

    _shown_before = False

    async def on_event(self, event: events.Event) -> None:
        """Drop a size that was replaced while it waited: the current one waits too."""
        if not (isinstance(event, events.Resize) and event.size != self.app.size):
            await super().on_event(event)

    @on(events.ScreenResume)
    def _skip_second_styles(self, event: events.ScreenResume) -> None:
        """Apply no style sheet as the screen is first shown: its widgets have just got their styles."""
        if not self._shown_before:
            self._shown_before, event.refresh_styles = True, False

    @on(events.Resize)
    def _skip_same_size(self, event: events.Resize) -> None:
        """Lay nothing out again for a size that has just been laid out: Textual would do all the work of a new screen twice."""
        if event.size == self.outer_size:
            event.prevent_default()
