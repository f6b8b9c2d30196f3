"""The hosts of a job, the worst first: which one's ranks and log are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dstui.tui.dialogs.pick import Pick
from dstui.tui.kit.text_row import Row, row
from dstui.tui.run.host_lines import Columns, HostLine, host_row

ALL_HOSTS = ""
"""The result where the log of all is wanted."""
AGAIN = 1.0
"""Seconds between two looks at the hosts."""


class Hosts(Pick):
    """The result is the name of a host, or ALL_HOSTS."""

    DEFAULT_CSS = """
    Hosts > Vertical { width: 94%; }
    """

    def __init__(self, hosts: Callable[[], Sequence[HostLine]]) -> None:
        """`hosts`: as they are now."""
        super().__init__("Hosts", "a part of its name")
        self._hosts = hosts

    def on_mount(self) -> None:
        """Draw them, again and again: one may be lost meanwhile."""
        super().on_mount()
        self.set_interval(AGAIN, self.redraw)

    def matching(self, text: str) -> list[Row]:
        """Those with it in their name; before anything is typed, first the way back to all of them."""
        hosts, width = self._hosts(), self.app.size.width * 94 // 100 - 8
        columns = Columns.of(hosts, width)
        found = [replace(host_row(line, columns, width), key=line.name) for line in hosts if text.strip().lower() in line.name.lower()]
        return found if text.strip() else [row(("all hosts", "accent"), key=ALL_HOSTS), *found]
