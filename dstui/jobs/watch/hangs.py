"""Decide when the silence of the ranks is a hang, and which ranks the others wait for: a pure function of the ranks' state and the time.

In data-parallel training no rank gets more than one step ahead of another, since each step synchronises all. One silent rank among talking
ones simply prints nothing (most scripts print on rank 0). If all are silent, one of them has not reached the collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.jobs.metrics.measurements import RankView
from dstui.jobs.watch.summary import duration_text

SILENCE = 300.0
"""Allowed seconds of silence if the Plan (`run.silence`) is not available."""
MEETINGS = ("backward", "step", "train_batch")
"""Phases of the engine in which ranks wait for each other."""
NAMED = 6
"""Ranks that a sentence lists. More ranks are counted."""


@dataclass(frozen=True, slots=True)
class Hang:
    """All living ranks have been silent for longer than allowed."""

    seconds: float
    """Since the last line of any of them."""
    step: int | None
    """The furthest step that any of them has printed; None if none prints steps."""
    waiting: tuple[int, ...]
    """Ranks at that step; all living ones if none prints steps."""
    missing: tuple[int, ...]
    """Living ranks that have printed steps, but not that one: the others wait for these."""
    absent: tuple[int, ...]
    """Ranks that never started, or have ended while others live."""
    living: int
    phases: Mapping[int, str] = field(default_factory=dict)
    """The work of ranks now, by their hooks: `in backward after step 41`."""

    def __str__(self) -> str:
        since = duration_text(self.seconds)
        if self.missing:
            reached = "it has" if len(self.missing) == 1 else "they have"
            at = self.phases.get(self.waiting[0]) if self.waiting else None
            text = f"{len(self.waiting)} of {self.living} ranks have waited for {since} {at or f'at step {self.step}'}; "
            text += f"{_named(self.missing)}: {self.phases.get(self.missing[0]) or f'{reached} not reached it'}"
        else:
            who = f"all {self.living} ranks that run have" if self.living > 1 else f"rank {self.waiting[0]}, the only one that runs, has"
            reported = f", the last reported step is {self.step}" if self.step is not None else ""
            text = f"{who} written nothing for {since}{reported}: silent work, or a hang"
        return text + (f"; {_named(self.absent)} {'is' if len(self.absent) == 1 else 'are'} not running" if self.absent else "")


def verdict(views: Mapping[int, RankView], now: float, silence: float) -> Hang | None:
    """Return a hang if every living rank has been silent for more than `silence` seconds; None otherwise, or if unknown."""
    living = _living(views)
    times = [view.last_sign for view in living.values() if view.last_sign is not None]
    if not times or now - max(times) <= silence:
        return None
    steps = {rank: view.step for rank, view in living.items() if view.step is not None}
    step = max(steps.values(), default=None)
    missing = tuple(sorted(rank for rank, at in steps.items() if step is not None and at < step))
    phases = {rank: str(view.now) for rank, view in living.items() if view.now is not None}
    meeting = [rank for rank, view in living.items() if view.now is not None and view.now.phase in MEETINGS]
    if not missing and meeting and len(phases) == len(living):
        missing = tuple(sorted(rank for rank in living if rank not in meeting))
    waiting = tuple(sorted(rank for rank in (steps if steps else living) if rank not in missing))
    absent = tuple(sorted(views.keys() - living.keys()))
    return Hang(now - max(times), step, waiting, missing, absent, len(living), phases)


class Watch:
    """Reports a hang once when it begins and once when it ends."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self.hang: Hang | None = None

    def news(self, views: Mapping[int, RankView], now: float) -> str | None:
        """Return the sentence to report now, if any."""
        before, self.hang = self.hang, verdict(views, now, self.silence)
        if self.hang and not before:
            return f"{self.hang}. `dstui stacks` shows where each of them is"
        if before and not self.hang and _living(views):
            return f"the ranks continue, after {duration_text(before.seconds)} without a line"
        return None


def _living(views: Mapping[int, RankView]) -> dict[int, RankView]:
    return {rank: view for rank, view in sorted(views.items()) if view.state == "started"}


def _named(ranks: Iterable[int]) -> str:
    """Format `rank 3`; `ranks 3, 4 and 7`; `40 ranks (3, 4, 5, …)`."""
    words = [str(rank) for rank in ranks]
    if len(words) > NAMED:
        return f"{len(words)} ranks ({', '.join(words[:NAMED])}, …)"
    return f"rank {words[0]}" if len(words) == 1 else f"ranks {', '.join(words[:-1])} and {words[-1]}"
