"""Select the lines of a job's logs by rank, host and level, and choose how equal lines are folded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from dstui.base.dataclass import dataclass
from dstui.logs.levels import ALL, ERROR, WARNING
from dstui.logs.line_query import LineQuery
from dstui.logs.log_folder import LogFolder
from dstui.logs.log_rows import LogRows
from dstui.logs.timeline import Timeline

MANY = 4
"""From this number of ranks on, lines of one shape are folded by default."""
LEVELS = {ALL: "", WARNING: "warnings and errors", ERROR: "errors"}


@dataclass(frozen=True)
class Filter:
    """A selection of lines. A rank is on one host, so only one of both is selected."""

    rank: int | None = None
    host: str | None = None
    least: int = ALL
    dedup: bool = True
    shape: bool | None = None
    """True if lines that differ only in numbers form one row; None decides by the number of ranks."""
    query: LineQuery = field(default_factory=LineQuery)
    """The filter that the user typed, in addition to the other selections."""

    def open(self, folder: LogFolder, hosts: Mapping[int, str]) -> LogRows:
        """Open the log in its present state. `hosts`: the host of each rank."""
        ranks = None if self.host is None else [rank for rank, host in hosts.items() if host == self.host]
        ranks = ranks if self.rank is None else [self.rank]
        if self.query.chooses_ranks:
            ranks = [rank for rank in (hosts if ranks is None else ranks) if self.query.has_rank(rank, hosts.get(rank, ""))]
        return LogRows(
            Timeline(folder, ranks),
            dedup=self.dedup and self.rank is None,
            shape=self.folds_shapes(hosts),
            least=max(self.least, self.query.least),
            only=self.query.texts,
            cutoff=self.query.since,
        )

    def folds_shapes(self, ranks: Collection[int]) -> bool:
        """Return whether lines of one shape form one row in a job of these ranks. Never if lines are selected by their text."""
        wanted = len(ranks) >= MANY if self.shape is None else self.shape
        return wanted and self.dedup and self.rank is None and not self.is_narrow

    def next_fold(self, ranks: Collection[int]) -> Filter:
        """Return the next filter in the cycle: fold by shape, fold equal lines, no folding."""
        if self.folds_shapes(ranks):
            return replace(self, shape=False)
        return replace(self, dedup=not self.dedup, shape=not self.dedup)

    @property
    def is_narrow(self) -> bool:
        """Return whether it hides lines of the selected logs."""
        return self.least != ALL or bool(self.query.text)

    @property
    def next_level(self) -> int:
        """The next level in the cycle."""
        return (self.least + 1) % len(LEVELS)

    def title(self, *, shapes: bool = False) -> str:
        """Return a description of the filter. `shapes`: lines are folded by shape."""
        folded = "folded by shape" if shapes else "folded" if self.dedup and self.rank is None else ""
        whose = f"rank {self.rank}" if self.rank is not None else self.host or "all ranks"
        how = (folded, f"filter {self.query.text}" if self.query.text else "")
        return f"Log: {', '.join(filter(None, (whose, LEVELS[self.least], *how)))}"
