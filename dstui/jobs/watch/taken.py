"""Measure what a run took, compared to its forecast: the highest memory of a GPU and of the ranks, and the time of a step.

Everything comes from the job folder: the shims' records (the kernel's figures for each rank), what NVML showed to watching sessions, and
the logs.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from dstui.base.files import FileProblem
from dstui.documents.plan_files import read_pool
from dstui.facts.measured import Taken, read_measured, remember, taken_of
from dstui.jobs.metrics.series import MetricSeries
from dstui.jobs.store.folder import JobFolder, read_json
from dstui.jobs.store.plan_diff import plan_of
from dstui.jobs.store.ranks import read_record
from dstui.jobs.watch.usage import USAGE
from dstui.logs.time_parsing import format_iso
from dstui.machine.snapshot import Machine, known
from dstui.plan import Plan, PlanError

if TYPE_CHECKING:
    from dstui.forecast.forecast import Forecast

NAME = "measured.json"
SECONDS = 20.0
"""Seconds for reading the logs of a long run. Only what was read by then counts."""


def keep(folder: JobFolder) -> Taken | None:
    """Measure a run that has ended, and store the result with the job and for later forecasts; None if nothing could be measured."""
    with suppress(FileProblem, PlanError, OSError, ValueError, TypeError, KeyError, AttributeError):
        plan = plan_of(folder)
        recorded = read_json(folder.path / "machine.json")
        machine = Machine.from_json(recorded)
        if not recorded or (plan.model is None and not plan.models) or not (taken := measure(folder, plan, machine)):
            return None
        folder.write_json(folder.path / NAME, {"version": 1, **asdict(taken)})
        remember(plan, machine, taken)
        return taken
    return None


def kept(folder: JobFolder) -> Taken | None:
    """Return the stored result of a job."""
    found = read_json(folder.path / NAME)
    return taken_of(found) if found else None


def expected(folder: JobFolder, plan: Plan | None) -> Forecast | None:
    """Return what a forecast says of a run on the machine that it was started on; None where its Plan names no model."""
    with suppress(FileProblem, PlanError, OSError, ValueError, TypeError, KeyError, AttributeError):
        recorded = read_json(folder.path / "machine.json")
        if plan is not None and recorded and (plan.model is not None or plan.models):
            estimate = _forecast(plan, Machine.from_json(recorded))
            return None if estimate.problem else estimate
    return None


def _forecast(plan: Plan, machine: Machine) -> Forecast:
    """Return the forecast of a Plan, without corrections from earlier runs."""
    from dstui.facts.model_files import read_models
    from dstui.forecast.forecast import forecast

    return forecast(plan, read_models(plan), machine, read_pool(plan), measured=read_measured("").of(machine))


def measure(folder: JobFolder, plan: Plan, machine: Machine) -> Taken | None:
    """Measure a run. One that ended before its first step has not taken its memory yet: it is not compared to the forecast."""
    status = folder.read_status()
    if status is None:
        return None
    estimate = _forecast(plan, machine)
    memory, step, loss = _read_logs(folder, estimate)
    gpu = _peak_of_gpus(folder, machine)
    node = node_memory(folder, status.attempt)
    if not (gpu or memory or node or step):
        return None
    scales = (
        _ratio(memory, estimate.allocated) or _ratio(gpu, estimate.shown) if estimate.gpu.bytes else _ratio(node, estimate.host.bytes),
        _ratio(step, estimate.speed.step if estimate.speed else None),
    )
    trained = loss or step is not None or status.state == "succeeded"
    ended = format_iso(status.ended) if status.ended else ""
    return Taken(
        run=folder.name,
        ended=ended,
        gpu_bytes=gpu or memory,
        node_bytes=node,
        step_seconds=step,
        memory_scale=scales[0] if trained else None,
        step_scale=scales[1],
        host_scale=_ratio(node, estimate.host.bytes) if estimate.gpu.bytes and trained else None,
        settings=estimate.setup.settings if trained and estimate.setup and not estimate.setups else "",
    )


def _ratio(real: float | None, forecast: float | None) -> float | None:
    return real / forecast if real and forecast else None


def node_memory(folder: JobFolder, attempt: int = 1) -> int | None:
    """Return the highest RAM use of one host's ranks, adding the peak of each; None if no shim could tell."""
    hosts: dict[str, int] = {}
    for path in folder.record(0, attempt).parent.glob("rank_*.json"):
        record: dict[str, Any] = read_record(path)
        if record.get("max_rss"):
            host = str(record.get("host"))
            hosts[host] = hosts.get(host, 0) + record["max_rss"]
    return max(hosts.values(), default=None)


def _peak_of_gpus(folder: JobFolder, machine: Machine) -> int | None:
    """Return the highest memory of a GPU by NVML, less what other processes used at the launch."""
    shown = read_json(folder.path / USAGE)
    before = {str(gpu.index): known(gpu.memory_used, 0) for gpu in machine.gpus}
    amounts = [most - before.get(gpu, 0) for gpu, most in shown.items() if type(most) is int]
    return max((amount for amount in amounts if 0 < amount < 1 << 60), default=None)


def _read_logs(folder: JobFolder, estimate: Forecast) -> tuple[int | None, float | None, bool]:
    """Return the peak of torch's allocations, the time of a step, and whether there is a loss, as far as the log lines contain them."""
    series, deadline = MetricSeries(folder), time.monotonic() + SECONDS
    try:
        while series.advance(0.5) and time.monotonic() < deadline:
            pass
        peak = max((point.high for curve in series.curves("memory_peak") for point in curve.points), default=0.0)
        return int(peak) or None, _step(series, estimate), "loss" in series.names()
    finally:
        series.close()


def _step(series: MetricSeries, estimate: Forecast) -> float | None:
    """Return the seconds of a step: the median after the first steps, from times or from speeds."""
    setup = estimate.setup
    done = {"step_time": 1.0, "steps/s": 1.0}
    if setup is not None:
        done |= {"samples/s": setup.samples, "tokens/s": setup.samples * setup.sequence}
    for name, of_step in done.items():
        values = [point.mean for curve in series.curves(name)[-1:] for point in curve.points if point.mean > 0]
        if values:
            usual = median(values[len(values) // 5 :])
            return usual if name == "step_time" else of_step / usual
    return None
