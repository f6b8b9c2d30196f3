"""The ranks of a job at one glance: a cell for each, with its state as glyph and word, its last step and loss, and its silence."""

from __future__ import annotations

from textual import events
from textual.message import Message

from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span, fit
from dstui.tui.run.rank_cell import Cell, spans
from dstui.tui.run.rank_summary import host_rows, total_row, worst_first

WIDE, TIGHT = 46, 15
"""Cells for one rank: with words (as many more as they need) where there are few, without where there are many."""
MANY = 64
"""Ranks that never get a wide cell."""
HOST = 16
"""Cells for the name of a host."""
FEW = 36
"""Lines of a screen that is too low for a line per rank."""


class RankStrip(RowList):
    """One cell per rank; a click shows the rank's log."""

    can_focus = False
    MARGIN = 1

    class RankPicked(Message):
        """A cell was clicked."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    def __init__(self) -> None:
        super().__init__(id="ranks", classes="pane")
        self._cells: list[list[int]] = []
        self._cell_width, self._indent = WIDE, 0
        self._lines = 0

    def show(self, cells: list[Cell], chosen: int | None) -> None:
        """Draw the cells, each host's on lines of their own, as many on a line as fit; of very many a summary."""
        width = self.size.width or 110
        most = 8 if self.app.size.height >= FEW else 4
        hosts = list(dict.fromkeys(c.host for c in cells))
        self._indent = min(max(map(len, hosts)), HOST) + 2 if len(hosts) > 1 else 0
        longest = max((len(c.words) for c in cells), default=0) if len(cells) <= MANY else width
        wide = max(WIDE, (longest + 19) // 10 * 10)  # tens, so that the cells stay where they are while numbers grow
        self._cell_width, lines = wide, self._grouped(cells, (width - self._indent) // wide)
        if not 0 < len(lines) <= most:
            self._cell_width, lines = TIGHT, self._grouped(cells, (width - self._indent) // TIGHT)
        rows = []
        if len(lines) > most:
            rows = [total_row(cells), *(host_rows(cells, most - 1, width) if len(hosts) > 1 else [])]
            lines = [] if len(hosts) > 1 else self._grouped(worst_first(cells), width // TIGHT)[: most - 1]
        self._cells = [[] for _ in rows] + [[c.rank for c in part] for part in lines]
        rows += [self._line(part, chosen, before) for before, part in zip(([], *lines), lines, strict=False)]
        self.show_rows(rows)
        if len(rows) != self._lines:
            self._lines = len(rows)
            self.styles.height = min(len(rows), most) + 2
        self.label("Ranks", hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts" if hosts else "")

    @staticmethod
    def _grouped(cells: list[Cell], per_line: int) -> list[list[Cell]]:
        """The cells in lines, none with ranks of two hosts; no lines where not even one fits."""
        lines: list[list[Cell]] = []
        for cell in cells if per_line > 0 else ():
            if not lines or len(lines[-1]) == per_line or lines[-1][-1].host != cell.host:
                lines.append([])
            lines[-1].append(cell)
        return lines

    def _line(self, cells: list[Cell], chosen: int | None, before: list[Cell]) -> Row:
        name = "" if before and before[-1].host == cells[0].host else cells[0].host
        host = [Span(f"{fit(name, self._indent - 1)} ", "dim")] if self._indent else []
        width, tight = self._cell_width, self._cell_width == TIGHT
        drawn = [span for c in cells for span in spans(c, width, tight=tight, chosen=c.rank == chosen)]
        return Row((*host, *drawn))

    def on_click(self, event: events.Click) -> None:
        """Show the log of the rank that was clicked."""
        y, x = event.y - self.gutter.top, event.x - self.gutter.left - self.MARGIN - self._indent
        if 0 <= y < len(self._cells) and 0 <= x // self._cell_width < len(self._cells[y]):
            self.post_message(self.RankPicked(self._cells[y][x // self._cell_width]))
