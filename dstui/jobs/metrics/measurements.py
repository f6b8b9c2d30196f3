"""A rank's lines, one after another, as measurements: each number with its name and the step that it belongs to.

What one line says is `metrics`' to know; here is what has to be remembered from line to line: where the training stands, how many
values of a name came, and which of the Plan's own patterns are too slow to be looked for any longer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dstui.jobs.engine.now import RankNow
from dstui.jobs.metrics.line_patterns import HINTS, LONGEST, Bar, Own, bar_of, scan
from dstui.jobs.metrics.progress import drawn, loss_over, reported, steps_before
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.logs.grep import LineSearch

ZEROS = str.maketrans("123456789", "000000000")
"""Whether a line holds a metric does not hang on which digits it has, only on where they stand."""
MOST_SHAPES = 4096
MOST_NAMES = 512
"""Series of one rank: a log that names its numbers anew in each line must not fill the memory."""
STANDS_IN = ("train/loss", "total_loss", "losses/total_loss", "loss_total", "lm_loss", "loss_mean", "avr_loss", "step_loss")
"""Names of the training's loss where none is plain `loss`; after these, any `*_loss` but those that are a part of it."""
SIGNS = re.compile(r"[/.-]")
"""What lines write for the `_` of a name."""
PART = re.compile(
    r"(?:.*[_/])?(?:aux|kl|value|critic|z|reg|load_balancing|balance|entropy|eval|epoch|val|test|unsupervised)_loss|(?:eval|val|test)[_/].*"
)


@dataclass(slots=True)
class RankView:
    """What is known of one rank. `state`: waiting, started, ended or lost."""

    host: str
    state: str = "waiting"
    exit_code: int | None = None
    killed_after: int | None = None
    """The rank that had failed first, where this one was then ended by a signal, as launchers do."""
    last_line_at: float | None = None
    """When its log was last written, seconds since the epoch; None where it has written nothing."""
    step: int | None = None
    steps: int | None = None
    """How many steps there will be, where its lines say so."""
    loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest value of each metric."""
    live: str = ""
    """Its unfinished line."""
    live_is_bar: bool = False
    """The unfinished line is drawn over and over: a progress bar."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many values of each metric came: their step, where lines name none."""
    reported: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Step and value of each metric as it was last told, where every state of a progress bar is read."""
    bar_reported: float = 0.0
    bar_measured: float = 0.0
    # Whose bars and words are the training's: see progress.py
    worded: bool = False
    counted: bool = False
    proven: bool = False
    clock: float = 0.0
    bar: Bar | None = None
    first_epoch: int | None = None
    by_epoch: bool = False
    plain_loss: bool = False
    """Its lines tell a `loss` without another name."""
    # What its engine reports: see engine_metrics.py
    by_engine: set[str] = field(default_factory=set)
    """Metrics that the engine reports: those of the same name in its lines are left out."""
    engine_step: int | None = None
    micro_steps: int = 1
    """Micro-batches of a step, by the engine."""
    unit: int = 1
    """Of the steps that lines count, how many make one of the engine's: some programs count micro-batches."""
    own_seconds: float | None = None
    """Seconds of a step in which it waited for no other rank, of the last steps."""
    last_step_at: float | None = None
    """When its engine last reported anything, seconds since the epoch."""
    now: RankNow | None = None
    """The phase that it is in; looked for where it has given no sign of life for a while."""

    @property
    def last_sign(self) -> float | None:
        """When it last wrote a line, or its engine made a step."""
        return max((at for at in (self.last_line_at, self.last_step_at) if at is not None), default=None)


class Measure:
    """Takes the measurements of one job's lines; the Plan's own patterns (`run.metrics`) among them."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        """`patterns`: name -> regular expression with one group, which are the number."""
        self._own = Own(patterns or {})
        self._without: set[str] = set()
        """Lines that hold no metric, every digit as 0: a log says most of them again and again, with other numbers."""

    @classmethod
    def of(cls, folder: JobFolder) -> Measure:
        """Return what the Plan of this job wants to have measured; nothing where its folder is older or broken."""
        launch = folder.read_launch()
        return cls(launch.metrics if launch else {})

    @property
    def wanted(self) -> LineSearch | None:
        """What a line must hold to say anything; None where the Plan's own patterns leave that open."""
        return None if self._own else LineSearch(tuple(hint.encode() for hint in HINTS), ignore_case=True)

    @property
    def own_names(self) -> Collection[str]:
        """The numbers of the Plan's own patterns."""
        return self._own.names

    def notices(self) -> list[str]:
        """Return what there is to say since the last call: patterns that are not looked for any more."""
        reported, self._own.reported = self._own.reported, []
        return reported

    def glance(self, view: RankView, bar: str) -> None:
        """Note the step that an unfinished progress bar tells."""
        if (state := bar_of(bar)) is not None:
            drawn(view, state)

    def __call__(self, view: RankView, rank: int, line: str, bar: str = "") -> list[Metric]:
        """Return the measurements of a rank's next line, noted in its view. `bar`: the progress bar that the line was written over."""
        if bar:
            self.glance(view, bar)
        found = _with_own(self._scan(line), self._own.scan(line))
        if not found:
            return []
        if "loss" in found:
            view.plain_loss = True
        elif not view.plain_loss and (name := self._other_loss(found)):
            found["loss"] = found[name]
        self._place(view, found, bar_of(line), bar_of(bar))
        if view.engine_step is not None:
            _keep_engine_step(view, view.engine_step)
        if view.by_engine:
            found = {name: value for name, value in found.items() if name not in view.by_engine}
        if "overflows" in found:
            found["overflows"] += view.metrics.get("overflows", 0)
        view.loss = found.get("loss", view.loss)
        metrics = []
        for name, value in found.items():
            if name not in view.counts and len(view.counts) >= MOST_NAMES:
                continue
            view.metrics[name] = value
            view.counts[name] = view.counts.get(name, 0) + 1
            counted = view.step is None
            metrics.append(Metric(rank, view.counts[name] if view.step is None else view.step, name, value, view.steps, counted))
        return metrics

    def _other_loss(self, found: Mapping[str, float]) -> str | None:
        """Return the name under which a line tells the training's loss; None where the Plan has numbers of its own for several models."""
        if not any("loss" in name for name in found) or any(name.endswith("loss") for name in self._own.names):
            return None
        others = (name for name in found if name.endswith("_loss") and not PART.fullmatch(name))
        return next((name for name in STANDS_IN if name in found), None) or next(others, None)

    def _scan(self, line: str) -> dict[str, float]:
        """As `scan`, which takes 25 µs for a line that could hold a metric; 1 µs where one like it held none."""
        shape = line[:LONGEST].translate(ZEROS)
        if shape in self._without:
            return {}
        found = scan(line)
        if not found and len(self._without) < MOST_SHAPES:
            self._without.add(shape)
        return found

    @staticmethod
    def _place(view: RankView, found: dict[str, float], own: Bar | None, over: Bar | None) -> None:
        """Note the step that a line tells: by a bar that it is, or in words; and over which bar a loss was told."""
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
    """Count the steps as the engine does; lines say how many there will be, maybe in micro-batches."""
    if view.step is not None and view.worded and step > 1 and view.micro_steps > 1:
        by_micro_batch = abs(view.step - step * view.micro_steps) < abs(view.step - step)
        view.unit = view.micro_steps if by_micro_batch else 1
    view.step = step


def _with_own(found: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float]:
    """dstui's own measurements of a line and the Plan's: `critic/loss 0.2` is the critic's loss, and not that of the training too."""
    if not own:
        return dict(found)
    named = {(name.rpartition("_")[2], value) for name, value in own.items()}
    return {**{name: value for name, value in found.items() if (name, value) not in named and SIGNS.sub("_", name) not in own}, **own}
