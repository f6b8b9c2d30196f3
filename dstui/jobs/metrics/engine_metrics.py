"""The metrics that a rank's engine reports. They take precedence over metrics of the same name in its log lines."""

from __future__ import annotations

from dstui.jobs.engine.lines import EngineLines, EngineMade, EngineStep, Report
from dstui.jobs.engine.resolved import model_name, read_planned
from dstui.jobs.metrics.measurements import RankView
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder

FILLS_IN = ("tokens/s", "memory", "memory_peak")
"""Metrics for which log lines take precedence: a program may exclude padding, or count all ranks. The same holds for models with names of
their own: a script that trains several defines the meaning of each loss."""
CHUNK = 1 << 16
WARM_UP = 5
"""Steps at the beginning whose times are meaningless: caches fill, kernels are compiled."""


class EngineMetrics:
    """Reads the lines of one rank's hook."""

    def __init__(self, folder: JobFolder, rank: int, attempt: int = 1) -> None:
        self.rank = rank
        self._folder = folder
        self.reports: list[Report] = []
        """Reports other than steps since they were last taken."""
        self._lines = EngineLines(folder.engine(rank, attempt))
        self._prefixes: dict[int, str] = {}
        self._before: dict[int, EngineStep] = {}
        self._first: int | None = None

    def read(self, view: RankView, budget: int = CHUNK) -> list[Metric]:
        """Return the metrics of further steps, and record them in the rank's view; empty if nothing is new."""
        metrics: list[Metric] = []
        before = -1
        while not metrics and self._lines.at != before:
            before = self._lines.at
            for report in self._lines.read(budget):
                if isinstance(report, EngineStep):
                    metrics += self._measured(view, report)
                else:
                    self._note(report)
        view.last_step_at = self._lines.modified
        return metrics

    def read_end(self, view: RankView, most: int) -> list[Metric]:
        """Return the metrics of only the last steps: read the beginning, which names the models, and `most` bytes of the end."""
        metrics = self.read(view, most)
        self._lines.skip_to_end(most)
        while further := self.read(view, most):
            metrics = [*metrics, *further]
        return metrics

    def _note(self, report: Report) -> None:
        self.reports.append(report)
        if isinstance(report, EngineMade) and (name := model_name(read_planned(self._folder), report)):
            self._prefixes[report.model] = f"{name}_"

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _measured(self, view: RankView, step: EngineStep) -> list[Metric]:
        """Return the metrics of one step. The first model that steps has the plain names, unless the Plan names its models."""
        if self._first is None:
            self._first = step.model
        leads = step.model == self._first
        prefix = self._prefixes.get(step.model, "" if leads else f"model{step.model}_")
        found = {f"{prefix}{name}": value for name, value in self._values(step).items()}
        if leads:
            view.engine_step = view.step = step.step
            view.micro_steps = step.micro_steps
            view.loss = found.get(f"{prefix}loss", view.loss)
            if step.own_seconds is not None and step.step > WARM_UP:
                view.own_seconds = step.own_seconds if view.own_seconds is None else 0.8 * view.own_seconds + 0.2 * step.own_seconds
        metrics = []
        for name, value in found.items():
            if name in view.counts and (name in FILLS_IN or step.model in self._prefixes):
                continue
            view.by_engine.add(name)
            view.metrics[name] = value
            metrics.append(Metric(self.rank, step.step, name, value, view.steps, source="engine"))
        return metrics

    def _values(self, step: EngineStep) -> dict[str, float]:
        before = self._before.get(step.model)
        self._before[step.model] = step
        values = {
            "loss": step.loss,
            "lr": step.lr[0] if step.lr else None,
            "grad_norm": step.grad_norm,
            "loss_scale": step.loss_scale,
            "skipped": float(step.skipped) if step.skipped else None,
            "step_time": (seconds := step.times.get("total")),
            "memory": step.memory.get("reserved"),
            "memory_peak": step.memory.get("peak"),
        }
        steps = step.step - (before.step if before else 0)
        if seconds and steps > 0:
            values["samples/s"] = (step.samples - (before.samples if before else 0)) / steps / seconds
            values["tokens/s"] = step.tokens / seconds if step.tokens else None
        return {name: float(value) for name, value in values.items() if value is not None}
