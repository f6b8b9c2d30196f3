"""Detect when the ranks of a job fall silent, which ranks they wait for, and when they continue: facts for events and diagnosis."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dstui.base.regular_files import open_regular
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import Ranks

if TYPE_CHECKING:
    from dstui.jobs.metrics.measurements import RankView

ALLOWED = 300.0
"""Allowed seconds of silence if the launch sets none."""
TAIL = 1 << 16
"""Bytes at the end of a log that are searched for the step of its rank."""


class SilenceWatch:
    """Reports once that all living ranks have been silent for too long, and once that they continue."""

    def __init__(self, folder: JobFolder, allowed: float | None) -> None:
        """Prepare to watch. `allowed`: seconds without a line of any rank."""
        self.folder = folder
        self.allowed = allowed or ALLOWED
        self._since: float | None = None
        """The time of the last line before a reported silence; None if there is none."""

    @property
    def pace(self) -> float:
        """Seconds between two looks."""
        return min(self.allowed / 4, 5.0)

    def news(self, ranks: Ranks, now: float) -> tuple[str, dict[str, Any]] | None:
        """Return the name and the facts of an event if there is one now."""
        last = self._last_line(ranks)
        if self._since is not None and last is not None and last > self._since:
            silent, self._since = last - self._since, None
            return "silence_over", {"seconds": round(silent, 1)}
        if self._since is not None or last is None or now - last <= self.allowed:
            return None
        self._since = last
        return "silence", {"since": round(last, 3), **self._hang(ranks, now)}

    def _last_line(self, ranks: Ranks) -> float | None:
        """Return when any living rank last wrote something; None if no rank lives or has written."""
        times = []
        for number in ranks.living:
            with suppress(OSError):
                found = self.folder.log(number, ranks.attempt).stat()
                times += [found.st_mtime] if found.st_size else []
            with suppress(OSError):  # a rank that steps without writing lines is not silent
                times.append(self.folder.engine(number, ranks.attempt).stat().st_mtime)
        return max(times, default=None)

    def _hang(self, ranks: Ranks, now: float) -> dict[str, Any]:
        """Return which ranks wait for which, by the steps at the ends of the logs."""
        from dstui.jobs.metrics.measurements import Measure  # not needed for a job that never falls silent
        from dstui.jobs.watch.hangs import verdict

        measure = Measure.of(self.folder)
        views = {number: self._view(ranks, number, measure) for number in ranks.ranks}
        hang = verdict(views, now, self.allowed)
        if hang is None:
            return {}
        return {"step": hang.step, "missing": list(hang.missing), "absent": list(hang.absent), "text": str(hang)}

    def _view(self, ranks: Ranks, number: int, measure: Any) -> RankView:
        from dstui.jobs.engine.now import read_now
        from dstui.jobs.metrics.measurements import RankView

        rank, path = ranks.ranks[number], self.folder.log(number, ranks.attempt)
        view = RankView(rank.host, rank.state)
        view.now = read_now(self.folder.engine(number, ranks.attempt, "json"))
        view.step = view.engine_step = view.now.step if view.now else None
        with suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
            view.last_line_at = path.stat().st_mtime
            file.seek(max(path.stat().st_size - TAIL, 0))
            for line in _lines(file.read(TAIL)):
                measure(view, number, line)
        return view


def _lines(data: bytes) -> Iterable[str]:
    """Return the lines of the end of a log. Each state of a progress bar is a line too."""
    return data.decode("utf-8", "replace").replace("\r", "\n").split("\n")
