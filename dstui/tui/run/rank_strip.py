"""The ranks of a job at one glance, and its hosts where there are several: the lines of strip_layout.py, which a click acts on."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from dstui.tui.kit.frame import label
from dstui.tui.kit.row_list import RowList
from dstui.tui.run.host_lines import HostLine
from dstui.tui.run.rank_cell import Cell
from dstui.tui.run.strip_layout import Selection, StripLine, strip

FEW = 36
"""Lines of a screen that is too low for a line per rank."""


class RankStrip(RowList):
    """A click on a rank shows its log, one on a host that of its ranks."""

    can_focus = False
    MARGIN = 1

    class RankPicked(Message):
        """A cell was clicked."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    class HostPicked(Message):
        """The line of a host was clicked."""

        def __init__(self, host: str) -> None:
            super().__init__()
            self.host = host

    def __init__(self) -> None:
        super().__init__(id="ranks", classes="pane")
        self._lines: list[StripLine] = []

    def show(self, cells: Sequence[Cell], hosts: Sequence[HostLine], at: Selection) -> None:
        """Draw the ranks. `at`: whose log is looked at."""
        most = 8 if self.app.size.height >= FEW else 4
        before = len(self._lines)
        self._lines = strip(cells, hosts, self.size.width or 110, most, at)
        self.show_rows([line.row for line in self._lines])
        if len(self._lines) != before:
            self.styles.height = min(len(self._lines), most) + 2
        label(self, "Ranks", hosts[0].name if len(hosts) == 1 else f"{len(hosts)} hosts" if hosts else "")

    def on_click(self, event: events.Click) -> None:
        """Show the log of the rank or host that was clicked."""
        y, x = event.y - self.gutter.top, event.x - self.gutter.left - self.MARGIN
        if not 0 <= y < len(self._lines):
            return
        line = self._lines[y]
        at = (x - line.indent) // line.cell
        if line.host:
            self.post_message(self.HostPicked(line.host))
        elif 0 <= at < len(line.ranks):
            self.post_message(self.RankPicked(line.ranks[at]))
