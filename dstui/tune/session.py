"""Run a tune: measure candidates one after the other as real jobs, within a budget, storing each result before the next begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from dstui.assess import Facts, assess
from dstui.base.dataclass import dataclass
from dstui.base.text import counted
from dstui.facts.measured import model_key, read_measured
from dstui.jobs.control.start import LaunchError
from dstui.jobs.control.stop import stop
from dstui.plan import Plan
from dstui.render.target import Target
from dstui.tune.candidates import CLEARLY, Candidate, Problem, best_of, doubtful, key_of, next_candidate, preferred
from dstui.tune.outputs import discard, prepare, redirected
from dstui.tune.record import Result, TuneFolder
from dstui.tune.trial import Goal, run_trial

Asked = Callable[[], int | None]
"""Returns the signal that requests the end; None if there is none yet."""
LEAST_TIME = 10.0
"""Seconds of budget below which no further job starts, if no job has shown how long one takes."""
QUIET = {"WANDB_MODE": "disabled"}
"""Variables of the short jobs, unless the Plan sets them: these jobs must not appear in experiment trackers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a tune."""

    budget: float = 600.0
    """Seconds for all jobs together, including those before a resumption."""
    steps: int = 8
    only: str = ""
    script_options: tuple[str, ...] = ()
    """Options of the script's parser."""


@dataclass(frozen=True)
class Tune:
    """A tune: its problem, and all that its jobs run in."""

    problem: Problem
    target: Target
    facts: Facts
    folder: TuneFolder
    options: Options
    asked: Asked
    tell: Callable[[str], None]

    def run(self) -> str:
        """Measure candidates until nothing worthwhile is left. Return why it ended: done, budget, stopped, failing."""
        folder, problem = self.folder, self.problem
        leave_nothing_running(folder)
        allowed = self._errors(problem.plan)
        while True:
            if self.asked() is not None:
                return "stopped"
            if _is_failing(folder.results):
                return self._finished("failing")
            left = self.options.budget - sum(one.seconds for one in folder.results)
            if folder.results and left < _typical(folder):
                return self._finished("budget")
            problem = replace(problem, measured=_measured(problem))
            candidate = next_candidate(problem, folder.results) or self._again(problem)
            if candidate is None:
                return self._finished("done")
            if new := self._errors(problem.plan.patch(candidate.patch)) - allowed:
                folder.keep(Result(label=candidate.label, patch=candidate.patch, state="failed", note=f"not started: {sorted(new)[0]}"))
                continue
            self.tell(f"{len(folder.results) + 1}: {candidate.label}")
            result = self._measure(problem, candidate, left)
            folder.keep(result)
            self.tell(f"   {describe(result)}")

    def _again(self, problem: Problem) -> Candidate | None:
        """Return a candidate to measure again, if other work on the machine may have decided."""
        one = None if self.options.only else doubtful(self.folder.results)
        return Candidate(f"{one.label}, again", tuple(one.patch), problem.setup(one.patch)) if one else None

    def _finished(self, why: str) -> str:
        self.folder.write(finished=True)
        return why

    def _errors(self, plan: Plan) -> set[str]:
        """Return the errors of a Plan as sentences."""
        findings = assess(replace(self.target, plan=plan), self.facts).findings
        return {f"{one.code}: {one.message}" for one in findings if one.severity == "error"}

    def _measure(self, problem: Problem, candidate: Candidate, left: float) -> Result:
        """Run the job of a candidate for at most `left` seconds."""
        folder, options = self.folder, self.options
        expected, job = problem.expected(candidate), folder.new_job()
        result = Result(
            label=candidate.label, patch=candidate.patch, job=job, expected_rate=expected.rate, expected_memory=expected.memory
        )  # fmt: skip
        place = folder.outputs(job)
        plan = trial_plan(problem.plan.patch(candidate.patch), place, options.script_options)
        prepare(place, plan.job.args)
        repeated = any(key_of(one.patch) == candidate.key for one in folder.results)
        best = None if options.only or repeated else best_of(folder.results)
        close = best.rate if best is not None and best.rate else 0.0
        goal = Goal(steps=options.steps, samples=candidate.setup.samples, deadline=left, least=_least(best), best=close)
        folder.keep(result)
        try:
            found = run_trial(replace(self.target, plan=plan), result, folder.path / job, goal, self.asked)
        except LaunchError as error:
            found = replace(result, state="failed", note=str(error))
        finally:
            discard(place)
        return _applied(problem, candidate, found, folder.results[0])


def leave_nothing_running(folder: TuneFolder) -> None:
    """End jobs of an earlier tune that was killed, and drop incomplete results."""
    for result in [one for one in folder.results if one.state in ("running", "stopped")]:
        stop(folder.job(result))
        discard(folder.outputs(result.job))
        folder.results.remove(result)


def describe(result: Result) -> str:
    """Describe the result of a candidate in a few words."""
    if result.rate and result.state in ("measured", "slower"):
        steps = counted(result.steps, "step")
        dropped = f"; slower, so it was dropped after {steps}" if result.state == "slower" else f", {steps}"
        return f"{result.rate:.4g} samples/s{dropped}"
    return f"{result.state}{': ' if result.note else ''}{result.note}"


def _least(best: Result | None) -> float:
    """Return the rate below which a candidate is dropped early: clearly less than the best, considering the variation of its steps."""
    return best.rate * (1 - max(CLEARLY, min(best.spread or 0.0, 0.5))) if best is not None and best.rate else 0.0


def _applied(problem: Problem, candidate: Candidate, found: Result, first: Result) -> Result:
    """Return a result. One whose script ignores the configured micro-batch is marked invalid."""
    wanted = candidate.setup.micro_batch / problem.setup().micro_batch
    if wanted == 1 or not found.elements or not first.elements or found is first:
        return found
    if abs(math.log(found.elements / first.elements)) > abs(math.log(wanted)) / 2:
        return found
    note = "the script uses the same batch as before: it does not take its micro-batch from the configuration or from these arguments"
    return replace(found, state="not applied", note=note)


def trial_plan(plan: Plan, place: Path, script_options: tuple[str, ...] = ()) -> Plan:
    """Return a Plan for a short job: output folders redirected, no restarts, no notification."""
    words, _ = redirected(plan, place, script_options)
    if words != list(plan.job.args):
        plan = plan.set("job.args", words)
    plan = plan.set("name", f"{plan.name or 'plan'}-tune")
    if plan.run.restarts.max:
        plan = plan.set("run.restarts.max", 0)
    if plan.run.on_end:
        plan = plan.unset("run.on_end")
    for name, value in QUIET.items():
        if name not in plan.cluster.env:
            plan = plan.set(f"cluster.env.{name}", value)
    return plan


def _measured(problem: Problem) -> Mapping[str, Any]:
    return read_measured(model_key(problem.plan)).of(problem.machine)


def _is_failing(results: list[Result]) -> bool:
    """Return whether further candidates would fail like the first ones, because the Plan itself cannot be measured."""
    if not results or any(one.state == "measured" for one in results):
        return False
    return results[0].state == "no steps" or [one.state for one in results[:2]] == ["failed", "failed"]


def _typical(folder: TuneFolder) -> float:
    """Return how long a job usually takes here."""
    took = [one.seconds for one in folder.results if one.seconds]
    return median(took) if took else LEAST_TIME


def chosen(problem: Problem, results: list[Result]) -> Result | None:
    """Return the winning result: the first of those as fast as the fastest; with `only`, the largest micro-batch that fits."""
    ran = [one for one in results if one.state == "measured" and one.rate]
    if problem.only:
        return max(ran, key=lambda one: problem.setup(one.patch).micro_batch, default=None)
    return preferred(results)
