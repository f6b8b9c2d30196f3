"""The hosts of a job, the worst first: which one's ranks and log are looked at."""

from __future__ import annotations

from collections.abc import Callable

from dstui.tui.dialogs.pick import Pick
from dstui.tui.kit.text_row import Row

AGAIN = 1.0
"""Seconds between two looks at the hosts: one may be lost meanwhile."""


class Hosts(Pick):
    """The result is the key of the chosen row."""

    DEFAULT_CSS = """
    Hosts > Vertical { width: 94%; }
    """

    def __init__(self, choices: Callable[[str, int], list[Row]]) -> None:
        """`choices`: the hosts as they are now with this text in their name, as rows so many cells wide."""
        super().__init__("Hosts", "a part of its name")
        self._choices = choices

    def on_mount(self) -> None:
        """Draw them, again and again."""
        super().on_mount()
        self.set_interval(AGAIN, self.redraw)

    def matching(self, text: str) -> list[Row]:
        """Those with it in their name."""
        return self._choices(text, self.app.size.width * 94 // 100 - 8)
