"""Decide what to measure next: a pure function of the Plan, the facts of its model, and the results so far.

The decision depends on nothing else, so that an interrupted tune continues where it was.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product, zip_longest
from typing import Any, NamedTuple

from dstui.adopt.script_options import options_of
from dstui.base.dataclass import dataclass
from dstui.check.auto_values import AUTO
from dstui.check.rules.batch import MICRO, STEPS, TRAIN
from dstui.forecast.capacity import capacity_of
from dstui.forecast.choices import CHOICES, Choice
from dstui.forecast.forecast import forecast, rates_for
from dstui.forecast.model import ModelFacts
from dstui.forecast.modelled import models_of
from dstui.forecast.patch import Patch, patch_of
from dstui.forecast.recommend import recommend, way_of
from dstui.forecast.setup import Setup
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.finding import Operation
from dstui.tune.record import Result

MAX_CANDIDATES = 12
"""The maximum number of measured candidates."""
LADDER_RUNS = 5
"""The number of runs to find the largest micro-batch."""
LARGEST = 10
"""The maximum number of times that the Plan's micro-batch is doubled."""
HOPELESS = 0.75
"""A candidate is not tried if its forecast, corrected by the measurements, is below this share of the best."""
SAME = 0.02
"""Rates that differ by less than this share count as equal."""
BETWEEN_JOBS = 2
"""The factor by which the rates of two jobs differ more by chance than the steps of each: a busy host slows some jobs as a whole."""
PROMISING = 0.05
"""A candidate is measured unless what its settings did elsewhere lets expect a rate that is lower than the best by this share."""
PATIENCE = 2
"""Candidates around the best that bring nothing, after which no other is measured if the likely best was measured at once (`_leap`)."""
MAX_NOISE = 0.25
"""The maximum share by which a rate that exceeds the best before may still be noise (`_without_gain`)."""
DOUBTFUL = 0.05
"""The deviation of a step from which on other work disturbs a machine, so that the two fastest candidates are measured again."""
AGAIN = 2
"""The maximum number of jobs that measure a candidate again."""
CLEARLY = 0.1
"""A rate that is lower than the best by this share is really slower; a smaller difference may be noise."""
ARGUMENTS = {"micro": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps"}
"""The Trainer's own options for the batch, which replace "auto" in the configuration."""


class Candidate(NamedTuple):
    """A Plan to measure, as a patch of the user's Plan."""

    label: str
    patch: Patch
    setup: Setup

    @property
    def key(self) -> str:
        """Return a text that identifies the candidate."""
        return key_of(self.patch)


def key_of(patch: Sequence[Mapping[str, Any]]) -> str:
    """Return a patch as a canonical text."""
    return json.dumps(list(patch), sort_keys=True, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The forecast of a candidate. None means unknown."""

    rate: float | None = None
    """Samples per second of all ranks."""
    memory: int | None = None
    fits: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The tuned Plan and its circumstances."""

    plan: Plan
    facts: ModelFacts
    machine: Machine
    pool: Mapping[str, int] | None = None
    only: str = ""
    """`micro-batch`, or empty for everything."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Measurements of earlier runs on this machine, which correct the forecast."""

    def setup(self, patch: Sequence[Operation] = ()) -> Setup:
        """Return the setup of the Plan after a patch."""
        plan = self.plan.patch(patch) if patch else self.plan
        room = capacity_of(plan, self.machine, self.pool)
        return models_of(plan, self.facts, room, self.machine)[0][0].setup

    def expected(self, candidate: Candidate) -> Expected:
        """Return the forecast, corrected by the measurements so far."""
        found = forecast(self.plan.patch(candidate.patch), self.facts, self.machine, self.pool, measured=self.measured)
        if found.problem:
            return Expected()
        need = found.gpu if found.gpu.bytes else found.host
        rate = candidate.setup.samples / found.speed.step if found.speed and found.speed.step else None
        return Expected(rate=rate, memory=need.bytes, fits=found.fits)


def next_candidate(problem: Problem, results: Sequence[Result]) -> Candidate | None:
    """Return what to measure next; None if nothing worthwhile is left. The unchanged Plan comes first."""
    was, results = problem.setup(), merged(results)
    if not results:
        return Candidate(f"the Plan as it is: {way_of(was)}", (), was)
    if problem.only:
        return _next_of_ladder(problem, was, results)
    if len(results) >= MAX_CANDIDATES:
        return None
    tried = {key_of(result.patch) for result in results}
    ways = _by_forecast if _speed_known(problem) else _by_steps
    return next((one for one in ways(problem, was, results) if one.key not in tried), None)


def merged(results: Sequence[Result]) -> list[Result]:
    """Return a result for each candidate: the fastest of several, because other work on a machine only slows jobs."""
    found: dict[str, Result] = {}
    for one in results:
        known = found.setdefault(key_of(one.patch), one)
        if (one.rate or 0.0) > (known.rate or 0.0):
            found[key_of(one.patch)] = one
    return list(found.values())


def doubtful(results: Sequence[Result]) -> Result | None:
    """Return a result to measure again: of the two fastest on a busy machine, the slower one first; None if there is no doubt."""
    single = merged(results)
    ranked = sorted((one for one in single if one.rate and one.state in ("measured", "slower")), key=lambda one: one.rate or 0.0)[-2:]
    if len(ranked) < 2 or len(results) - len(single) >= AGAIN or max(one.spread or 0.0 for one in ranked) <= DOUBTFUL:
        return None
    times = Counter(key_of(one.patch) for one in results)
    return next((one for one in ranked if times[key_of(one.patch)] == 1), None)


def best_of(results: Sequence[Result]) -> Result | None:
    """Return the fastest result; None if nothing was measured."""
    return max((one for one in results if one.state == "measured" and one.rate), key=lambda one: one.rate or 0.0, default=None)


def preferred(results: Sequence[Result]) -> Result | None:
    """Return the first result that is as fast as the fastest, apart from noise: the Plan comes first, then the usually fastest."""
    results = merged(results)
    best = best_of(results)
    if best is None:
        return None

    def noise(one: Result) -> float:
        return min(max(SAME, BETWEEN_JOBS * ((best.spread or 0.0) + (one.spread or 0.0))), CLEARLY)

    measured = (one for one in results if one.state == "measured" and one.rate)
    return next((one for one in measured if (best.rate or 0.0) < (one.rate or 0.0) * (1 + noise(one))), best)


def regret_of(problem: Problem, results: Sequence[Result]) -> float | None:
    """Return by what share the forecast's own choice is slower than the best result; None if that was not measured."""
    alone, results = replace(problem, measured={}), merged(results)
    rates = {id(one): alone.expected(Candidate(one.label, tuple(one.patch), problem.setup(one.patch))).rate for one in results if one.rate}
    if sum(1 for rate in rates.values() if rate) > 1:
        ran = [one for one in results if rates.get(id(one))]
        first: Result | None = max(ran, key=lambda one: rates[id(one)] or 0.0)
    else:
        ran = [one for one in results if one.rate]
        first = _first_of_search(alone, ran)
    if first is None or len(ran) < 2:
        return None
    return 1 - (first.rate or 0.0) / max(one.rate or 0.0 for one in ran)


def _first_of_search(problem: Problem, ran: Sequence[Result]) -> Result | None:
    """Return the first row of the search that was measured, for machines whose speed the forecast does not know."""
    was, by_key = problem.setup(), {key_of(one.patch): one for one in ran}
    for row in recommend(problem.plan, problem.facts, problem.machine, problem.pool).rows:
        setup = row.setup._replace(checkpointing=was.checkpointing)
        made = candidate_of(problem.plan, setup, was)
        found = by_key.get(made.key if made else key_of(()) if setup == was else "")
        if found is not None:
            return found
    return None


def _speed_known(problem: Problem) -> bool:
    room = capacity_of(problem.plan, problem.machine, problem.pool)
    models, _ = models_of(problem.plan, problem.facts, room, problem.machine)
    return not problem.facts.problem and rates_for(models, room, problem.machine, problem.measured).flops > 0


def _by_forecast(problem: Problem, was: Setup, results: Sequence[Result]) -> Iterator[Candidate]:
    """Yield the different rows of the search, fastest first, unless their forecast rules them out."""
    ranked = recommend(problem.plan, problem.facts, problem.machine, problem.pool, measured=problem.measured)
    best = best_of(results)
    for row in ranked.rows:
        setup = row.setup._replace(checkpointing=was.checkpointing)
        if setup != row.setup:
            continue  # recomputation is decided by the script: a Plan cannot change it
        made = candidate_of(problem.plan, setup, was)
        if made is None:
            continue
        rate = problem.expected(made).rate
        if not (best and best.rate and rate and rate < HOPELESS * best.rate):
            yield made
    for setup in _around(problem, best, results) if best else ():
        made = candidate_of(problem.plan, setup, was)
        expected = problem.expected(made) if made else Expected()
        if made and best and best.rate and expected.fits and (expected.rate or 0.0) > (1 - CLEARLY) * best.rate:
            yield made


def _by_steps(problem: Problem, was: Setup, results: Sequence[Result]) -> Iterator[Candidate]:
    """Yield the setups that differ from the best so far in one setting, for models without a forecast. The usually fastest come first."""
    best, leap = preferred(results), _leap(problem, was, results[0])
    if leap and _without_gain(results) >= PATIENCE and any(problem.setup(one.patch) in leap for one in results):
        return
    setups = _smaller(problem, results[-1]) if best is None else [*leap, *_around(problem, best, results)]
    for setup in setups:
        made = candidate_of(problem.plan, setup, was)
        if made is not None and problem.expected(made).fits is not False:
            yield made


def _without_gain(results: Sequence[Result]) -> int:
    """Return how many results there are since one was faster than all before, apart from the noise of both."""
    best, spread, since = 0.0, 0.0, 0
    for one in results:
        rate, own = (one.rate or 0.0) * (one.state == "measured"), one.spread or 0.0
        since = 0 if rate > best * (1 + min(max(SAME, spread + own), MAX_NOISE)) else since + 1
        best, spread = (rate, own) if rate > best else (best, spread)
    return since


def _smaller(problem: Problem, last: Result) -> list[Setup]:
    """Return the setups that need less memory than one that did not fit."""
    setup = problem.setup(last.patch)
    room = capacity_of(problem.plan, problem.machine, problem.pool)
    here = Choice(setup.stage, setup.optimizer_offload, setup.param_offload)
    more = [choice for choice in CHOICES[CHOICES.index(here) + 1 :] if choice.stage == here.stage or choice == Choice(here.stage + 1)]
    half = _scaled(problem.plan, setup, 0.5)
    return [choice.of(setup) for choice in more if choice.possible(setup, room)] + ([half] if half else [])


def _leap(problem: Problem, was: Setup, own: Result) -> list[Setup]:
    """Return the lowest stage with the largest micro-batch that certainly fits: usually the fastest, and far from a careful Plan."""
    micros = [_scaled(problem.plan, was, 2.0**n) for n in range(LARGEST, -1, -1)]
    for stage, micro in product(range(4), micros):
        setup = Choice(stage).of(micro) if micro else None
        made = candidate_of(problem.plan, setup, was) if setup else None
        if setup and made and _surely_fits(problem, made, was, own):
            return [setup]
    return []


def _surely_fits(problem: Problem, made: Candidate, was: Setup, own: Result) -> bool:
    """Return whether a setup certainly fits.

    For a known model the forecast decides. For an unknown one, the memory of the unchanged Plan on all ranks, scaled like the micro-batch,
    must be free.
    """
    fits = problem.expected(made).fits
    if fits is not None or own.memory is None:
        return fits is True
    room = capacity_of(problem.plan, problem.machine, problem.pool)
    free = room.host if room.on_cpu else room.gpu
    return free is not None and own.memory * room.ranks * made.setup.micro_batch / was.micro_batch < free


def _around(problem: Problem, best: Result, results: Sequence[Result]) -> Iterator[Setup]:
    """Yield the setups that differ from the best in micro-batch, or in stage or offload, in turn; then those that differ in two of them.

    One is left out if what both changes did elsewhere says that it is slower: each measured job costs the start of all ranks.
    """
    centre = problem.setup(best.patch)
    room = capacity_of(problem.plan, problem.machine, problem.pool)
    here = _way(centre)
    stages = [Choice(stage) for stage in (here.stage - 1, here.stage + 1) if here.offload == "" and 0 <= stage <= 3]
    offloads = [choice for choice in CHOICES if choice.stage == here.stage and choice != here]
    ways = [choice.of(centre) for choice in (*stages, *offloads) if choice.possible(centre, room)]
    batches = [setup for factor in (2.0, 0.5) if (setup := _scaled(problem.plan, centre, factor))]
    both = [way._replace(micro_batch=batch.micro_batch, accumulation=batch.accumulation) for way, batch in product(ways, batches)]
    rates = {(_way(setup), setup.micro_batch): one.rate for one in results if one.rate and (setup := problem.setup(one.patch))}
    alone = [setup for pair in zip_longest(batches, ways) for setup in pair if setup]
    yield from (setup for setup in (*alone, *both) if _likely_share(rates, centre, setup) >= 1 - PROMISING)


def _way(setup: Setup) -> Choice:
    return Choice(setup.stage, setup.optimizer_offload, setup.param_offload)


def _likely_share(rates: Mapping[tuple[Choice, int], float], centre: Setup, setup: Setup) -> float:
    """Return the likely rate of a setup as a share of the best, if stage and micro-batch act alone; what was not measured counts as 1."""
    was, way, micros = _way(centre), _way(setup), dict.fromkeys((centre.micro_batch, *(micro for _, micro in rates)))
    of_way = (rates[way, micro] / rates[was, micro] for micro in micros if (way, micro) in rates and (was, micro) in rates)
    ways = dict.fromkeys((was, *(other for other, _ in rates)))
    old, new = centre.micro_batch, setup.micro_batch
    of_batch = (rates[other, new] / rates[other, old] for other in ways if (other, new) in rates and (other, old) in rates)
    return next(of_way, 1.0) * next(of_batch, 1.0)


def _scaled(plan: Plan, setup: Setup, factor: float) -> Setup | None:
    """Return a setup with a scaled micro-batch and the same samples per step; None if there is none."""
    samples, micro = setup.micro_batch * setup.accumulation, int(setup.micro_batch * factor)
    if not batch_place(plan) or micro < 1 or samples % micro:
        return None
    return setup._replace(micro_batch=micro, accumulation=samples // micro)


def batch_place(plan: Plan) -> str:
    """Return who sets the micro-batch: `config` (a number there), `arguments` (the Trainer's own), "" if only the script knows."""
    given = {key: plan.deepspeed.get(key) for key in (MICRO, STEPS, TRAIN)}
    if all(value in (None, AUTO) for value in given.values()):
        return "arguments" if plan.job.integration != "deepspeed" and ARGUMENTS["micro"] in options_of(plan.job.args) else ""
    return "" if AUTO in given.values() else "config"


def candidate_of(plan: Plan, setup: Setup, was: Setup) -> Candidate | None:
    """Return a setup as a candidate; None if the Plan cannot express it."""
    same_batch = (setup.micro_batch, setup.accumulation) == (was.micro_batch, was.accumulation)
    if same_batch or batch_place(plan) == "config":
        patch = patch_of(plan, setup, was)
        if setup.samples != was.samples and plan.deepspeed.get(TRAIN) is not None:
            patch = (*patch, {"op": "replace", "path": f"/deepspeed/{TRAIN}", "value": setup.samples})
    elif batch_place(plan) == "arguments":
        rest = patch_of(plan, setup._replace(micro_batch=was.micro_batch, accumulation=was.accumulation), was)
        args = with_option(plan.job.args, ARGUMENTS["micro"], str(setup.micro_batch))
        args = with_option(args, ARGUMENTS["accumulation"], str(setup.accumulation))
        patch = (*rest, {"op": "replace", "path": "/job/args", "value": args})
    else:
        return None
    return Candidate(way_of(setup), patch, setup) if patch else None


def with_option(words: Sequence[str], name: str, value: str) -> list[str]:
    """Return arguments with another value of an option, which is appended if it is missing."""
    found = list(words)
    for at, word in enumerate(found):
        option, equals, _ = word.partition("=")
        if option.startswith("--") and option[2:].replace("-", "_") == name:
            if equals:
                found[at] = f"{option}={value}"
            else:
                found[at + 1 : at + 2] = [value]
            return found
    return [*found, f"--{name}", value]


def _next_of_ladder(problem: Problem, was: Setup, results: Sequence[Result]) -> Candidate | None:
    """Return the next micro-batch to try: doubled up to the largest that should fit, then halfway between fitting and not fitting."""
    if len(results) >= LADDER_RUNS:
        return None
    rungs = {rung: made for rung in range(-LARGEST, LARGEST + 1) if (made := _rung(problem.plan, was, rung)) is not None}
    keys = {made.key: rung for rung, made in rungs.items()} | {key_of(()): 0}
    done = {keys[key]: result for result in results if (key := key_of(result.patch)) in keys}
    low = max((rung for rung, result in done.items() if result.state == "measured"), default=None)
    high = min((rung for rung, result in done.items() if result.state != "measured"), default=None)
    between = [rung for rung in rungs if (low is None or rung > low) and (high is None or rung < high) and rung not in done]
    if not between:
        return None
    fitting = [rung for rung in between if problem.expected(rungs[rung]).fits is True]
    if fitting and max(fitting) != max(between):
        return rungs[max(fitting)]
    if low is None:
        return rungs[max(between)]
    if high is None:
        return rungs[min(between, key=lambda rung: abs(rung - (low + 2 ** (len(results) - 1))))]
    return rungs[between[len(between) // 2]]


def _rung(plan: Plan, was: Setup, doublings: int) -> Candidate | None:
    """Return the Plan with a micro-batch doubled or halved `doublings` times. The samples per step stay the same if possible."""
    micro = int(was.micro_batch * 2.0**doublings)
    if doublings == 0 or micro < 1 or (doublings < 0 and was.micro_batch % 2**-doublings):
        return None
    accumulation = max(was.micro_batch * was.accumulation // micro, 1)
    return candidate_of(plan, was._replace(micro_batch=micro, accumulation=accumulation), was)
