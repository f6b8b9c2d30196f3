"""The progress of a rank's training: its step, and the total number of steps.

A line that names its step (`step 581`) is trusted. A progress bar may belong to something else: an evaluation, tokenizing, epochs or
micro-batches. It is the training's if it agrees with the named steps; without these, if a loss is printed over it; and without any loss, if
it is the longest.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from dstui.jobs.metrics.line_patterns import Bar

MAX_EPOCHS = 1_000_000
LAG = 2, 10
"""A bar may differ from the named steps by this many, or by one in this many: it is drawn at most ten times a second."""

SAMPLES = 60
"""Number of samples, at least a second apart, from which the pace of the steps is computed."""


class Pace:
    """The pace of a training over the last minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def note(self, done: int) -> None:
        """Record that a step is done, at most once a second. If the step goes back, start again."""
        now = time.monotonic()
        if self._samples and done < self._samples[-1][1]:
            self._samples.clear()
        if not self._samples or (done > self._samples[-1][1] and now - self._samples[-1][0] >= 1.0):
            self._samples.append((now, done))

    def remaining(self, done: int, total: int) -> float | None:
        """Return the seconds until the last step; None if the pace is unknown."""
        if len(self._samples) < 2:
            return None
        (then, before), (now, last) = self._samples[0], self._samples[-1]
        return max(total - done, 0) * (now - then) / (last - before) if last > before else None


class Standing(Protocol):
    """The state of a rank's progress."""

    step: int | None
    steps: int | None
    """The total number of steps; None if unknown."""
    worded: bool
    """True if its lines name their step."""
    counted: bool
    """True if they also name the total."""
    proven: bool
    """True if a loss was printed over the bar that counts as the training's."""
    clock: float
    """The running time of this bar in seconds."""
    bar: Bar | None
    """The last bar that was drawn, of any kind."""
    first_epoch: int | None
    """The first epoch named by a line with steps of its own."""
    by_epoch: bool
    """True if the training's bar counts the steps of one epoch."""


def reported(view: Standing, step: int, steps: int | None) -> None:
    """Record the step that a line names, and the total if it names one. An evaluation has fewer steps."""
    if steps is not None and view.steps is not None and steps < view.steps and (view.counted or view.proven):
        return
    view.worded, view.step = True, step
    if steps is not None:
        view.steps, view.counted = steps, True
    elif not view.counted:
        view.steps = view.bar.total if view.bar is not None and _agrees(view.bar, step) else _possible(view.steps, step)


def steps_before(view: Standing, epoch: int, steps: int) -> int:
    """Return the number of steps before this epoch, if each epoch has `steps`: steps must not restart with each epoch."""
    if view.first_epoch is None or epoch < view.first_epoch:
        view.first_epoch = epoch
    return min(epoch - view.first_epoch, MAX_EPOCHS) * steps


def drawn(view: Standing, bar: Bar) -> None:
    """Record a new state of a progress bar."""
    if not bar.total:
        return
    view.bar = bar = _add_earlier_epochs(view, bar)
    if view.worded and view.step is not None:
        if view.steps is None and _agrees(bar, view.step):
            view.steps = bar.total
        view.step = bar.done if view.steps == bar.total and bar.done >= view.step else view.step
    elif view.steps in (None, bar.total) or _next_epoch(bar, view) or (not view.proven and _longer(bar, view)):
        _take(view, bar)


def loss_over(view: Standing, bar: Bar) -> None:
    """Record that a loss was printed over this bar."""
    if bar.total and not view.worded:
        bar = _add_earlier_epochs(view, bar)
        if bar.total == view.steps or not view.proven or _next_epoch(bar, view) or _longer(bar, view):
            _take(view, bar)
        view.proven = True


def _add_earlier_epochs(view: Standing, bar: Bar) -> Bar:
    """Return a bar of an epoch's steps with those of earlier epochs added."""
    if bar.epoch is None:
        return bar
    before = steps_before(view, bar.epoch, bar.total)
    return bar._replace(done=bar.done + before, total=bar.total + before)


def _take(view: Standing, bar: Bar) -> None:
    view.step, view.steps, view.clock, view.by_epoch = bar.done, bar.total, bar.clock, bar.epoch is not None


def _next_epoch(bar: Bar, view: Standing) -> bool:
    return view.by_epoch and bar.epoch is not None and view.step is not None and bar.done >= view.step


def _longer(bar: Bar, view: Standing) -> bool:
    """Return whether the bar is longer than the current one: in steps, or in time if that one has ended."""
    assert view.steps is not None
    ended = view.step is not None and view.step >= view.steps
    return bar.clock > view.clock if ended else bar.total > view.steps and bar.clock >= view.clock


def _agrees(bar: Bar, step: int) -> bool:
    """Return whether the bar may count the same steps. Before the first step, every bar agrees with the first named one."""
    return bar.done > 0 and step <= bar.total and abs(bar.done - step) <= max(LAG[0], step // LAG[1])


def _possible(steps: int | None, step: int) -> int | None:
    return steps if steps is not None and step <= steps else None
