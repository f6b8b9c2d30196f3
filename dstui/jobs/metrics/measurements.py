"""Turn a rank's lines, one after another, into measurements: each number with its name and its step.

`line_patterns` reads a single line. This module keeps what must be remembered between lines: the progress of the training, and the
number of values of each name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.jobs.engine.now import RankNow
from dstui.jobs.metrics.line_patterns import HINTS, LONGEST, Bar, bar_of, scan
from dstui.jobs.metrics.own_patterns import OwnPatterns
from dstui.jobs.metrics.progress import drawn, loss_over, reported, steps_before
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.logs.grep import LineSearch

ZEROS = str.maketrans("123456789", "000000000")
"""The positions of a line's digits decide whether it has a metric, not their values."""
MAX_SHAPES = 4096
MAX_NAMES = 512
"""Series of one rank: a log with new names in each line must not fill the memory."""
STANDS_IN = ("train/loss", "total_loss", "losses/total_loss", "loss_total", "lm_loss", "loss_mean", "avr_loss", "step_loss")
"""Names of the training's loss without a plain `loss`, in this order; then any `*_loss` that is not a part of it."""
SIGNS = re.compile(r"[/.-]")
"""Characters that lines use instead of the `_` of a name."""
SILENT = 30.0
"""Seconds without a report of an engine while lines tell of further steps. Even of millions of steps one is reported every 5 s."""
PART = re.compile(
    r"(?:.*[_/])?(?:aux|kl|value|critic|z|reg|load_balancing|balance|entropy|eval|epoch|val|test|unsupervised)_loss|(?:eval|val|test)[_/].*"
)


@dataclass(slots=True)
class RankView:
    """The state of one rank. `state`: waiting, started, ended or lost."""

    host: str
    state: str = "waiting"
    exit_code: int | None = None
    killed_after: int | None = None
    """The rank that had failed first, if the launcher then ended this one by a signal."""
    last_line_at: float | None = None
    """The time of the last write of its log, seconds since the epoch; None if it is empty."""
    step: int | None = None
    steps: int | None = None
    """The total number of steps, if its lines name it."""
    loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest value of each metric."""
    live: str = ""
    """Its incomplete last line."""
    live_is_bar: bool = False
    """True if the incomplete line is redrawn in place, like a progress bar."""
    counts: dict[str, int] = field(default_factory=dict)
    """The number of values of each metric, used as their step if lines name none."""
    reported: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Step and value of each metric as last reported, if every state of a progress bar is read."""
    bar_reported: float = 0.0
    bar_measured: float = 0.0
    # The progress of the training: see progress.py
    worded: bool = False
    counted: bool = False
    proven: bool = False
    clock: float = 0.0
    bar: Bar | None = None
    first_epoch: int | None = None
    by_epoch: bool = False
    plain_loss: bool = False
    """True if its lines have a loss called just `loss`."""
    # What its engine reports: see engine_metrics.py
    by_engine: set[str] = field(default_factory=set)
    """Metrics that the engine reports: those of the same name in its lines are ignored."""
    engine_step: int | None = None
    micro_steps: int = 1
    """Micro-batches of a step, by the engine."""
    unit: int = 1
    """Steps counted by the lines per step of the engine: some programs count micro-batches."""
    own_seconds: float | None = None
    """Seconds of recent steps in which it did not wait for another rank."""
    last_step_at: float | None = None
    """The time of its engine's last report, seconds since the epoch."""
    now: RankNow | None = None
    """Its present phase, which is read if it has been silent for a while."""

    @property
    def last_sign(self) -> float | None:
        """Return the time of its last line or step."""
        return max((at for at in (self.last_line_at, self.last_step_at) if at is not None), default=None)

    def engine_fell_silent(self) -> bool:
        """Return whether the lines tell of further steps than the engine reports: its hook has stopped, or cannot write."""
        if self.step is None or self.engine_step is None or self.last_line_at is None or self.last_step_at is None:
            return False
        if self.last_line_at - self.last_step_at < max(SILENT, 3 * self.metrics.get("step_time", 0.0)):
            return False
        return self.step > (self.engine_step + 1) * self.unit


class Measure:
    """Measures the lines of one job, including the Plan's own patterns (`run.metrics`)."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        """Prepare to measure. `patterns`: name -> regular expression whose one group is the number."""
        self._own = OwnPatterns(patterns or {})
        self._without: set[str] = set()
        """Lines without a metric, with every digit as 0: logs repeat most lines with other numbers."""

    @classmethod
    def of(cls, folder: JobFolder) -> Measure:
        """Return the measurements that the Plan of this job asks for; empty if its folder is older or broken."""
        launch = folder.read_launch()
        return cls(launch.metrics if launch else {})

    @property
    def wanted(self) -> LineSearch | None:
        """Return what a line must contain to have a metric; None if the Plan's own patterns make that unknown."""
        return None if self._own else LineSearch(tuple(hint.encode() for hint in HINTS), ignore_case=True)

    @property
    def own_names(self) -> Collection[str]:
        """The names of the Plan's own patterns."""
        return self._own.names

    def notices(self) -> list[str]:
        """Return the messages since the last call: patterns that are not used any more."""
        reported, self._own.reported = self._own.reported, []
        return reported

    def record_bar(self, view: RankView, bar: str) -> None:
        """Record the step of an unfinished progress bar."""
        if (state := bar_of(bar)) is not None:
            drawn(view, state)

    def __call__(self, view: RankView, rank: int, line: str, bar: str = "") -> list[Metric]:
        """Return the measurements of a rank's next line, and record them in its view. `bar`: the progress bar that the line overwrote."""
        if bar:
            self.record_bar(view, bar)
        found = _with_own(self._scan(line), self._own.scan(line))
        if not found:
            return []
        if "loss" in found:
            view.plain_loss = True
        elif not view.plain_loss and (name := self._other_loss(found)):
            found["loss"] = found[name]
        self._place(view, found, bar_of(line), bar_of(bar))
        if view.engine_fell_silent():
            view.by_engine.clear()
            view.engine_step, view.unit = None, 1
        elif view.engine_step is not None:
            _keep_engine_step(view, view.engine_step)
        if view.by_engine:
            found = {name: value for name, value in found.items() if name not in view.by_engine}
        if "overflows" in found:
            found["overflows"] += view.metrics.get("overflows", 0)
        view.loss = found.get("loss", view.loss)
        metrics = []
        for name, value in found.items():
            if name not in view.counts and len(view.counts) >= MAX_NAMES:
                continue
            view.metrics[name] = value
            view.counts[name] = view.counts.get(name, 0) + 1
            counted = view.step is None
            metrics.append(Metric(rank, view.counts[name] if view.step is None else view.step, name, value, view.steps, counted))
        return metrics

    def _other_loss(self, found: Mapping[str, float]) -> str | None:
        """Return the name of the training's loss in a line; None if the Plan has metrics of its own for several models."""
        if not any("loss" in name for name in found) or any(name.endswith("loss") for name in self._own.names):
            return None
        others = (name for name in found if name.endswith("_loss") and not PART.fullmatch(name))
        return next((name for name in STANDS_IN if name in found), None) or next(others, None)

    def _scan(self, line: str) -> dict[str, float]:
        """Do the same as `scan`, in 1 µs instead of 25 µs for lines like earlier ones without a metric."""
        shape = line[:LONGEST].translate(ZEROS)
        if shape in self._without:
            return {}
        found = scan(line)
        if not found and len(self._without) < MAX_SHAPES:
            self._without.add(shape)
        return found

    @staticmethod
    def _place(view: RankView, found: dict[str, float], own: Bar | None, over: Bar | None) -> None:
        """Record the progress in a line (a bar, or a named step), and the bar over which a loss was printed."""
        step, steps, within = (found.pop(name, None) for name in ("step", "steps", "within"))
        if own is not None:
            drawn(view, own)
        elif step is not None:
            total = int(steps) if steps is not None else None
            before = steps_before(view, int(within), total) if within is not None and total else 0
            reported(view, int(step) + before, total + before if total is not None else None)
        if "loss" in found and (bar := own or over) is not None:
            loss_over(view, bar)


def _keep_engine_step(view: RankView, step: int) -> None:
    """Count steps as the engine does. Lines give the total, perhaps in micro-batches."""
    if view.step is not None and view.worded and step > 1 and view.micro_steps > 1:
        by_micro_batch = abs(view.step - step * view.micro_steps) < abs(view.step - step)
        view.unit = view.micro_steps if by_micro_batch else 1
    view.step = step


def _with_own(found: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float]:
    """Combine dstui's measurements of a line with the Plan's: `critic/loss 0.2` is only the critic's loss, not also the training's."""
    if not own:
        return dict(found)
    named = {(name.rpartition("_")[2], value) for name, value in own.items()}
    return {**{name: value for name, value in found.items() if (name, value) not in named and SIGNS.sub("_", name) not in own}, **own}
