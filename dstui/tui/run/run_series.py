"""The metrics of a job in view: one series for each, in bounded memory, for the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dstui.jobs.metrics.buckets import Buckets
from dstui.jobs.store.events import Metric

if TYPE_CHECKING:
    from dstui.jobs.watch.usage_history import History

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

    @property
    def is_bare(self) -> bool:
        """Return whether no series has two values, so that there is nothing to draw."""
        return not any(len(each.points) > 1 for each in self._series.values())

    def ordered(self, own: Iterable[str] = ()) -> dict[str, Buckets]:
        """Return the series, the most important first; `own`: the Plan's own metrics, which come after the loss."""
        order = [WANTED[0], *own, *WANTED[1:]]
        names = [name for name in order if name in self._series]
        names += [name for name in self._series if name not in order and name not in LAST]
        return {name: self._series[name] for name in dict.fromkeys([*names, *(name for name in LAST if name in self._series)])}


USED = {
    "gpu util": "percent of the time in which the GPU worked, over the seconds of the job",
    "gpu memory": "bytes of the GPU in use, over the seconds of the job",
    "cpu util": "percent of a core that the rank used, over the seconds of the job",
    "cpu memory": "bytes of RAM of the rank, over the seconds of the job",
}
"""Values that the supervisor samples, by their names in plots, and what each is."""


def usage_metrics(history: History, since: float) -> Iterator[Metric]:
    """Yield what ranks used as metrics, over the seconds from `since` on."""
    for rank, samples in history.samples.items():
        for sample in samples:
            for name, value in (("util", sample.load), ("memory", sample.memory)):
                if value is not None:
                    yield Metric(rank, round(max(sample.t - since, 0.0)), f"{sample.kind.lower()} {name}", value)


def usage_series(history: History | None) -> dict[str, Buckets]:
    """Return the load and the memory of each rank's GPU in the last minutes, or of its process on the CPU: `gpu util r4`."""
    found: dict[str, Buckets] = {}
    if history is not None and history.samples:
        since = min(samples[0].t for samples in history.samples.values())
        for metric in usage_metrics(history, since):
            found.setdefault(f"{metric.name} r{metric.rank}", Buckets()).add(metric.step, metric.value)
    return dict(sorted(found.items(), key=lambda item: " memory " in item[0]))
