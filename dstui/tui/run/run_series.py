"""The metrics of a job in view: one series for each, in bounded memory, for the dashboard."""

from __future__ import annotations

from collections.abc import Iterable

from dstui.jobs.metrics.buckets import Buckets
from dstui.jobs.store.events import Metric

WANTED = ("loss", "lr", "tokens/s", "grad_norm", "samples/s", "step_time", "steps/s", "eval_loss", "accuracy", "perplexity", "memory")
"""The usual metrics, in this order; other ones follow."""
LAST = ("loss_scale", "overflows", "skipped", "epoch", "trainable_parameters")
"""Metrics that hardly ever change."""


class RunSeries:
    """Each metric from the lowest rank that reports it."""

    def __init__(self) -> None:
        self.count = 0
        """The number of values so far, by which a drawing is known to be outdated."""
        self._series: dict[str, Buckets] = {}
        self._tellers: dict[str, int] = {}

    def add(self, metric: Metric) -> None:
        """Add a value, if it is of the lowest rank so far."""
        teller = self._tellers.setdefault(metric.name, metric.rank)
        if metric.rank < teller:
            self._tellers[metric.name], teller = metric.rank, metric.rank
            del self._series[metric.name]
        if metric.rank == teller:
            self._series.setdefault(metric.name, Buckets()).add(metric.step, metric.value)
            self.count += 1

    def ordered(self, own: Iterable[str] = ()) -> dict[str, Buckets]:
        """Return the series, the most important first; `own`: the Plan's own metrics, which come after the loss."""
        order = [WANTED[0], *own, *WANTED[1:]]
        names = [name for name in order if name in self._series]
        names += [name for name in self._series if name not in order and name not in LAST]
        return {name: self._series[name] for name in dict.fromkeys([*names, *(name for name in LAST if name in self._series)])}
