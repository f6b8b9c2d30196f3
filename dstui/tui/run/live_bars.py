"""Unfinished progress bars, shown below the log of several ranks because no log contains them yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len

from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span, fit

if TYPE_CHECKING:
    from dstui.jobs.metrics.measurements import RankView

MAX_BARS = 3
"""The most bars that are shown."""
HOLD = 3.0
"""Seconds for which the space of a bar is kept: between two epochs there is none, and the log would jump."""
READ = 400
"""Characters of a bar that are parsed."""
COUNT: Final = r"\d{1,12}(?:\.\d{1,6})?[kMGT]?"
BAR: Final = re.compile(rf"(?P<name>[^%|]*?)[:\s]*(?P<percent>\d{{1,3}})%\|[^|]*\|\s*(?P<done>{COUNT})/(?P<total>{COUNT})\s*(?P<rest>.*)")
DIGITS: Final = str.maketrans("123456789", "000000000")
WHO = 5
"""Cells for the rank or the number of ranks, as in the log."""


class LiveBar(NamedTuple):
    """One rank's bar. Bars with the same `key` are the same bar on several ranks."""

    rank: int
    key: tuple[str, str]
    name: str
    percent: int = 0
    done: str = ""
    total: str = ""
    rest: str = ""
    """The text behind it: time, speed and the script's additions."""


def live_bars(ranks: Mapping[int, RankView]) -> list[list[LiveBar]]:
    """Return the distinct bars with the ranks that draw each, the one furthest behind first."""
    groups: dict[tuple[str, str], list[LiveBar]] = {}
    for number, view in sorted(ranks.items()):
        if view.state == "started" and view.live_is_bar and view.live.strip():
            bar = read_bar(number, view.live[:READ].strip())
            groups.setdefault(bar.key, []).append(bar)
    return [sorted(group, key=lambda bar: (bar.percent, _number(bar.done))) for group in groups.values()]


def read_bar(rank: int, text: str) -> LiveBar:
    """Parse a bar as tqdm draws it, with or without a name; any other redrawn text is its own key, ignoring digits."""
    match = BAR.match(text)
    if match is None:
        return LiveBar(rank, (text.translate(DIGITS), ""), text)
    name, total = match["name"].strip(), match["total"]
    return LiveBar(rank, (name, total), name, int(match["percent"]), match["done"], total, match["rest"])


def _number(count: str) -> float:
    """Parse a count: 11, 1.20k, 3.5M."""
    return float(count.rstrip("kMGT") or 0) * {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(count[-1:], 1)


def bar_rows(groups: Sequence[Sequence[LiveBar]], width: int) -> list[Row]:
    """Return a row for each of the first bars: `×16 Epoch 1  49 %  148/300`."""
    rows = [_row(group, width) for group in groups[:MAX_BARS]]
    if len(groups) > MAX_BARS:
        rows[-1] = Row(rows[-1].left, (Span(f"+{len(groups) - MAX_BARS} more", "dim"),))
    return rows


def _row(group: Sequence[LiveBar], width: int) -> Row:
    first, last = group[0], group[-1]
    who = f"×{len(group)}" if len(group) > 1 else f"r{first.rank}"
    spans = [Span(f"{who:>{WHO}} ", "accent"), Span(f"{first.name}  " if first.name else "")]
    if first.total:
        percent, done = _range(str(first.percent), str(last.percent)), _range(first.done, last.done)
        spans += [Span(f"{percent} %  ", "title"), Span(f"{done}/{first.total}  "), Span(first.rest, "dim")]
    left = width
    for place, span in enumerate(spans):
        if cell_len(span.text) > left:
            return Row((*spans[:place], Span(fit(span.text, left), span.style)))
        left -= cell_len(span.text)
    return Row(tuple(spans))


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


class LiveBars(RowList):
    """The bars, at most MAX_BARS lines; hidden if there are none."""

    MARGIN = 1
    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="bars")
        self.display = False
        self._lines = 0
        self._filled = 0.0

    def show(self, ranks: Mapping[int, RankView]) -> None:
        """Show the bars of these ranks; hide the widget if there are no ranks."""
        rows, now = bar_rows(live_bars(ranks), (self.size.width or 80) - self.MARGIN - 1), monotonic()
        self.show_rows(rows)
        if len(rows) >= self._lines:
            self._filled = now
        if len(rows) > self._lines or not ranks or now - self._filled >= HOLD:
            self._take_place(len(rows))

    def _take_place(self, lines: int) -> None:
        if lines != self._lines:
            self._lines, self.display = lines, lines > 0
            self.styles.height = lines
