"""Run one short job: started like any other, watched through its engine's reports, and stopped after enough steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem
from dstui.base.regular_files import read_end
from dstui.base.text import counted
from dstui.diagnosis import diagnose_job
from dstui.jobs.control.start import start
from dstui.jobs.control.stop import stop
from dstui.jobs.control.take_over import take_over
from dstui.jobs.engine.lines import EngineLines, EngineMade, EngineStep, LoneOptimizer, read_all
from dstui.jobs.metrics.series import MetricSeries
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.engine_notices import lone_sentence
from dstui.jobs.watch.taken import node_memory
from dstui.logs.decode import decode
from dstui.render.target import Target
from dstui.tune.record import Result

POLL = 0.05
LOGS_EVERY = 0.5
"""Seconds between two looks into the logs if no engine reports its steps."""
JUDGED_AFTER, JUDGED_FOR = 2, 0.5
"""Measured steps, and their seconds, after which a candidate that is slower than the best is dropped."""
MEASURED_FOR = 1.0
"""Seconds that the measured steps last at least: starting a job costs many times that, and rates of a few milliseconds are noise."""
CLOSE = 0.05
"""Rates that differ by less are measured for longer."""
SETTLED = 20.0
"""Seconds for the supervisor to finish after the end of the ranks."""
OUT_OF_MEMORY = frozenset({"OOM-GPU", "OOM-HOST", "MEMORY-LIMIT", "ALLOC-REFUSED", "PINNED-MEM"})
"""Causes of the diagnosis that mean too little memory."""
NO_STEPS = (
    "no step was seen in {:.0f} s: the ranks have made no engine of DeepSpeed, and their logs name no time of a step "
    "(--budget gives them longer; run.metrics: {{step_time: REGEX}} says how the log writes it)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The condition under which a job has run for long enough."""

    steps: int
    """The number of steps, of which the first does not count."""
    samples: int
    """The number of samples per step of all ranks, from the configuration."""
    deadline: float
    """The maximum number of seconds for the whole job."""
    least: float = 0.0
    """Samples per second: slower candidates are dropped."""
    best: float = 0.0
    """Samples per second of the best result so far. A candidate that is as fast, apart from noise, runs for twice the steps."""


class Watch:
    """Collects the steps of a job, from the engine of the first rank, else from the logs."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        self.lines = EngineLines(folder.engine(0))
        self.series: MetricSeries | None = None
        self.looked = time.monotonic()
        self.made: EngineMade | None = None
        self.alone: LoneOptimizer | None = None
        self.steps: list[EngineStep] = []
        self.logged: list[float] = []

    def look(self, last: bool = False) -> None:
        """Read new steps."""
        while reports := self.lines.read():
            for report in reports:
                if isinstance(report, EngineMade) and self.made is None:
                    self.made = report
                elif isinstance(report, LoneOptimizer):
                    self.alone = report
                elif isinstance(report, EngineStep) and report.model == 1:
                    self.steps.append(report)
        if self.made is None and (last or time.monotonic() - self.looked > LOGS_EVERY):
            self._read_logs()

    def _read_logs(self) -> None:
        self.looked = time.monotonic()
        self.series = self.series or MetricSeries(self.folder)
        self.series.advance(LOGS_EVERY)
        for name in ("step_time", "steps/s"):
            values = [point.mean for curve in self.series.curves(name)[-1:] for point in curve.points if point.mean > 0]
            if values:
                self.logged = [value if name == "step_time" else 1 / value for value in values][1:]
                return

    @property
    def seconds(self) -> list[float]:
        """The duration of each measured step: from the end of one to the end of the next, including the data loader."""
        return [after.t - before.t for before, after in zip(self.steps, self.steps[1:], strict=False)] or self.logged

    @property
    def elements(self) -> float | None:
        """Elements that a micro-step passed to the model."""
        fed = [step.elements / max(step.micro_steps, 1) for step in self.steps if step.elements]
        return median(fed) if fed else None

    def close(self) -> None:
        """Close the files."""
        self.lines.close()
        if self.series is not None:
            self.series.close()


def run_trial(target: Target, result: Result, place: Path, goal: Goal, asked: Callable[[], int | None]) -> Result:
    """Run one candidate and return its result. Raises LaunchError. However this ends, no process of the job is left."""
    began = time.monotonic()
    folder = start(target, run_dir=place, owner_pid=os.getpid())
    watch = Watch(folder)
    try:
        state = _wait(folder, watch, goal, began, asked)
        stop(folder)
        watch.look(last=True)
        found = _measured(_judged(result, folder, watch, state, time.monotonic() - began), watch, goal.samples)
    finally:
        stop(folder)
        watch.close()
    _settle(folder)
    return replace(found, memory=memory_of(folder), seconds=round(time.monotonic() - began, 3))


def _wait(folder: JobFolder, watch: Watch, goal: Goal, began: float, asked: Callable[[], int | None]) -> str:
    """Wait until enough is known: measured, slower, stopped, late, or ended."""
    while True:
        watch.look()
        seconds = watch.seconds
        lasted = sum(seconds)
        if lasted >= MEASURED_FOR and len(seconds) >= goal.steps - 1:
            if len(seconds) >= 2 * goal.steps - 2 or not _is_close(goal, seconds):
                return "measured"
        elif lasted >= JUDGED_FOR and len(seconds) >= JUDGED_AFTER and goal.samples / median(seconds) < goal.least:
            return "slower"
        if asked() is not None:
            return "stopped"
        if watch.alone is not None and watch.made is None and not seconds:
            return "alone"
        if (status := take_over(folder)) is None or status.final:
            return "ended"
        if time.monotonic() - began > goal.deadline:
            return "late"
        time.sleep(POLL)


def _is_close(goal: Goal, seconds: Sequence[float]) -> bool:
    """Return whether the rate is that of the best, but for noise."""
    return goal.best > 0 and abs(goal.samples / median(seconds) / goal.best - 1) < CLOSE


def _judged(result: Result, folder: JobFolder, watch: Watch, state: str, took: float) -> Result:
    """Return the result with its state, and a sentence if it was not measured."""
    enough = len(watch.seconds) >= JUDGED_AFTER
    if state in ("measured", "slower", "stopped"):
        return replace(result, state=state)
    if state == "alone" and watch.alone is not None:
        return replace(result, state="no steps", note=lone_sentence([watch.alone]))
    if state == "late":
        note = f"only {counted(len(watch.seconds), 'step')} in {took:.0f} s" if watch.seconds else NO_STEPS.format(took)
        return replace(result, state="measured" if enough else "no steps", note=note)
    status = folder.read_status()
    if status is None or status.exit_code != 0:
        return _failed(result, folder)
    done = len(watch.seconds) + 1 if watch.seconds else len(watch.steps)
    note = f"the script ended after {counted(done, 'step')}, and at least {JUDGED_AFTER + 1} are needed: give it more data or steps"
    return replace(result, state="measured") if enough else replace(result, state="no steps", note=note)


def _failed(result: Result, folder: JobFolder) -> Result:
    """Return the result with the cause of the failure: too little memory, or another one."""
    try:
        why = diagnose_job(folder)
    except FileProblem as problem:
        return replace(result, state="failed", note=str(problem))
    last = _last_line(folder) if why.cause is None else ""
    note = f"its log ends with: {last}" if last else why.title
    return replace(result, state="out of memory" if why.cause in OUT_OF_MEMORY else "failed", note=note)


def _last_line(folder: JobFolder) -> str:
    for log in (folder.log(0), folder.launcher_log):
        try:
            lines = read_end(log, 8192).splitlines()
        except OSError:
            continue
        if lines:
            return decode(lines[-1])[:300]
    return ""


def _measured(result: Result, watch: Watch, samples: int) -> Result:
    """Return the result with its measurements: number of steps, samples per second, deviation."""
    seconds = watch.seconds
    if not seconds or not (middle := median(seconds)):
        return replace(result, steps=len(watch.steps))
    if watch.made is not None and len(watch.made.batch) == 3 and watch.made.batch[0]:
        samples = watch.made.batch[0]
    spread = median(abs(each / middle - 1) for each in seconds)
    return replace(result, steps=len(seconds), rate=samples / middle, spread=spread, elements=watch.elements)


def _settle(folder: JobFolder) -> None:
    """Wait until the supervisor has finished: it stores what the run took, which corrects the next forecast."""
    until = time.monotonic() + SETTLED
    while folder.is_attended() and time.monotonic() < until:
        time.sleep(POLL)


def memory_of(folder: JobFolder) -> int | None:
    """Return the highest GPU memory that torch reserved on any rank; for CPU ranks, the RAM of those on a node."""
    status = folder.read_status()
    ranks: Sequence[int] = sorted(status.ranks) if status else ()
    reserved = [
        max(report.memory.get("reserved", 0), report.memory.get("peak", 0))
        for rank in ranks
        for report in read_all(folder.engine(rank), 1 << 22)
        if isinstance(report, EngineStep) and report.memory
    ]
    return max(reserved, default=None) or node_memory(folder)
