"""One line of the log whole, wrapped, with who said it and when, among the lines that the same rank said around it."""

from __future__ import annotations

from dstui.logs.log_rows import LogLine, LogRows
from dstui.logs.time_parsing import format_clock
from dstui.tui.dialogs.dialog import ToRead
from dstui.tui.kit.text_row import Row, paragraph

BEFORE, AFTER = 8, 40
"""Lines of the rank around it."""
REACH = 2000
"""Rows in which they are looked for."""


class WholeLine(ToRead):
    """Read with the arrows; any other key closes it."""

    DEFAULT_CSS = """
    WholeLine > Vertical { width: 94%; height: 90%; max-height: 90%; }
    WholeLine RowList { height: 1fr; max-height: 100%; }
    """

    ROWS = "whole-line"

    def __init__(self, lines: LogRows, number: int, hosts: dict[int, str]) -> None:
        line, who = lines.line(number), lines.ranks_of(number)
        host = hosts.get(line.rank, "") if line.rank is not None and len(who) < 2 else ""
        super().__init__("  ".join(filter(None, (ranks_text(who) or "Line", f"on {host}" if host else "", format_clock(line.time)))))
        self.number, self.near = number, around(lines, number)

    def on_mount(self) -> None:
        """Show it once the width is known, with the line in view."""
        self.rows.focus()
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        rows: list[Row] = []
        at, view = 0, self.rows
        for number, line in self.near:
            at = len(rows) if number == self.number else at
            rows += paragraph(line.text, view.size.width - 4, "title" if number == self.number else "dim")
        view.show_rows(rows)
        view.scroll_to(y=max(at - view.size.height // 3, 0), animate=False)


def around(lines: LogRows, number: int) -> list[tuple[int, LogLine]]:
    """A row, and those near it that its rank said."""
    rank = lines.line(number).rank

    def of_rank(rows: range, most: int) -> list[tuple[int, LogLine]]:
        found: list[tuple[int, LogLine]] = []
        for n in rows:
            if len(found) == most:
                break
            line = lines.line(n)
            if line.rank == rank or (line.repeats > 1 and rank in lines.ranks_of(n)):
                found.append((n, line))
        return found

    before = of_rank(range(number - 1, max(lines.first, number - REACH) - 1, -1), BEFORE)
    return [*before[::-1], (number, lines.line(number)), *of_rank(range(number + 1, min(lines.end, number + REACH)), AFTER)]


def ranks_text(ranks: list[int]) -> str:
    """rank 3; ranks 0-7, 9."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {text}" if text else ""
