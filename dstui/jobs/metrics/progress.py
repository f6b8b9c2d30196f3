"""Where a rank's training stands: its step, and how many there will be.

A line that says its step in words (`step 581`) is believed. A progress bar may be anybody's: an evaluation's, that of data being tokenized,
of epochs or of micro-batches. It is the training's where it agrees with the words; where there are none, where a loss is told over it;
and where nobody tells a loss, it is the longest.
"""

from __future__ import annotations

from typing import Protocol

from dstui.jobs.metrics.line_patterns import Bar

MOST_EPOCHS = 1_000_000
LAG = 2, 10
"""So many steps, or one in so many, a bar may differ from the words: it is drawn ten times a second at most."""


class Standing(Protocol):
    """What is remembered of a rank for this."""

    step: int | None
    steps: int | None
    """How many steps there will be; None where nobody says it."""
    worded: bool
    """Its lines say their step in words."""
    counted: bool
    """They also say how many there will be."""
    proven: bool
    """A loss was told over the bar that is taken for the training's."""
    clock: float
    """Seconds that this bar has run."""
    bar: Bar | None
    """The bar that was drawn last, whosever it is."""
    first_epoch: int | None
    """The first epoch that a line with steps of its own named."""
    by_epoch: bool
    """The bar that is taken for the training's counts the steps of an epoch."""


def reported(view: Standing, step: int, steps: int | None) -> None:
    """Note the step that a line says in words, and maybe how many there will be. An evaluation's are fewer."""
    if steps is not None and view.steps is not None and steps < view.steps and (view.counted or view.proven):
        return
    view.worded, view.step = True, step
    if steps is not None:
        view.steps, view.counted = steps, True
    elif not view.counted:
        view.steps = view.bar.total if view.bar is not None and _agrees(view.bar, step) else _possible(view.steps, step)


def steps_before(view: Standing, epoch: int, steps: int) -> int:
    """Return how many steps the epochs before this one had, where each has so many: steps must not begin anew with each epoch."""
    if view.first_epoch is None or epoch < view.first_epoch:
        view.first_epoch = epoch
    return min(epoch - view.first_epoch, MOST_EPOCHS) * steps


def drawn(view: Standing, bar: Bar) -> None:
    """Note another state of a progress bar."""
    if not bar.total:
        return
    view.bar = bar = _in_all(view, bar)
    if view.worded and view.step is not None:
        if view.steps is None and _agrees(bar, view.step):
            view.steps = bar.total
        view.step = bar.done if view.steps == bar.total and bar.done >= view.step else view.step
    elif view.steps in (None, bar.total) or _next_epoch(bar, view) or (not view.proven and _longer(bar, view)):
        _take(view, bar)


def loss_over(view: Standing, bar: Bar) -> None:
    """Note that a loss was printed over this bar."""
    if bar.total and not view.worded:
        bar = _in_all(view, bar)
        if bar.total == view.steps or not view.proven or _next_epoch(bar, view) or _longer(bar, view):
            _take(view, bar)
        view.proven = True


def _in_all(view: Standing, bar: Bar) -> Bar:
    """Return a bar of an epoch's steps with those of the epochs before it."""
    if bar.epoch is None:
        return bar
    before = steps_before(view, bar.epoch, bar.total)
    return bar._replace(done=bar.done + before, total=bar.total + before)


def _take(view: Standing, bar: Bar) -> None:
    view.step, view.steps, view.clock, view.by_epoch = bar.done, bar.total, bar.clock, bar.epoch is not None


def _next_epoch(bar: Bar, view: Standing) -> bool:
    return view.by_epoch and bar.epoch is not None and view.step is not None and bar.done >= view.step


def _longer(bar: Bar, view: Standing) -> bool:
    """Return whether it is longer than the bar that was taken until now: in steps, or, where that one has ended, in time."""
    assert view.steps is not None
    ended = view.step is not None and view.step >= view.steps
    return bar.clock > view.clock if ended else bar.total > view.steps and bar.clock >= view.clock


def _agrees(bar: Bar, step: int) -> bool:
    """Return whether it may count the same steps. Before anything is done, every bar agrees with the first words."""
    return bar.done > 0 and step <= bar.total and abs(bar.done - step) <= max(LAG[0], step // LAG[1])


def _possible(steps: int | None, step: int) -> int | None:
    return steps if steps is not None and step <= steps else None
