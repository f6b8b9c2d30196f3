"""Where a rank's training stands: its step, and how many there will be.

A line that says its step in words (`step 581`) is believed. A progress bar may be anybody's: an evaluation's, that of data being tokenized,
of epochs or of micro-batches. It is the training's where it agrees with the words; where there are none, where a loss is told over it;
and where nobody tells a loss, it is the longest.
"""

from __future__ import annotations

from typing import Protocol

from dstui.jobs.metrics.line_patterns import Bar

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


def reported(view: Standing, step: int, steps: int | None) -> None:
    """A line says its step in words, and maybe how many there will be. An evaluation's are fewer."""
    if steps is not None and view.steps is not None and steps < view.steps and (view.counted or view.proven):
        return
    view.worded, view.step = True, step
    if steps is not None:
        view.steps, view.counted = steps, True
    elif not view.counted:
        view.steps = view.bar.total if view.bar is not None and _agrees(view.bar, step) else _possible(view.steps, step)


def drawn(view: Standing, bar: Bar) -> None:
    """A progress bar shows another state."""
    if not bar.total:
        return
    view.bar = bar
    if view.worded and view.step is not None:
        if view.steps is None and _agrees(bar, view.step):
            view.steps = bar.total
        view.step = bar.done if view.steps == bar.total and bar.done >= view.step else view.step
    elif view.steps in (None, bar.total) or (not view.proven and _longer(bar, view)):
        _take(view, bar)


def loss_over(view: Standing, bar: Bar) -> None:
    """A loss was told over this bar."""
    if bar.total and not view.worded:
        if bar.total == view.steps or not view.proven or _longer(bar, view):
            _take(view, bar)
        view.proven = True


def _take(view: Standing, bar: Bar) -> None:
    view.step, view.steps, view.clock = bar.done, bar.total, bar.clock


def _longer(bar: Bar, view: Standing) -> bool:
    """Whether it is longer than the bar that was taken until now: in steps, or, where that one has ended, in time."""
    assert view.steps is not None
    ended = view.step is not None and view.step >= view.steps
    return bar.clock > view.clock if ended else bar.total > view.steps and bar.clock >= view.clock


def _agrees(bar: Bar, step: int) -> bool:
    """Whether it may count the same steps. Before anything is done, every bar agrees with the first words."""
    return bar.done > 0 and step <= bar.total and abs(bar.done - step) <= max(LAG[0], step // LAG[1])


def _possible(steps: int | None, step: int) -> int | None:
    return steps if steps is not None and step <= steps else None
