"""Format the result of a tune: as text, and as the object that `dstui tune --json` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dstui.jobs.store.plan_diff import changes
from dstui.machine.report import format_size
from dstui.plan import Plan
from dstui.tune.candidates import merged
from dstui.tune.record import Result, TuneFolder

RESTLESS = 0.25
"""The median deviation of a step, as a share, above which rates do not allow a choice."""
WORDS = {
    "done": "no faster candidate is left in the forecast or next to the best one",
    "budget": "the budget is used up",
    "stopped": "it was stopped: the same command resumes it",
    "failing": "the Plan as it is could not be measured, so nothing else was tried",
}


def lines(plan: Plan, folder: TuneFolder, chosen: Result | None, why: str, regret: float | None = None) -> Iterator[str]:
    """Yield the table, the choice, and the resulting changes of the Plan."""
    yield f"  {'#':>2}  {'':13}  {'forecast':>19}  {'measured':>25}   candidate"
    for number, result in enumerate(folder.results, 1):
        mark = f"{'*' if result is chosen else ' '} {number:>2}"
        yield f"{mark}  {result.state:13}  {_forecast(result):>19}  {_measured(result):>25}   {result.label}"
        if result.note:
            yield f"  {'':>2}  {result.note}"
    yield "samples/s of all ranks, and memory of a GPU (of ranks on CPUs: RAM of a node); ± is the median deviation of a step"
    again = len(folder.results) - len(merged(folder.results))
    repeated = f", {again} again because other work disturbs this machine" if again else ""
    yield f"{len(folder.results) - again} candidates{repeated}, {sum(one.seconds for one in folder.results):.0f} s of jobs: {WORDS[why]}"
    if any((one.spread or 0.0) > RESTLESS for one in folder.results):
        yield f"the time of a step differed by more than {RESTLESS:.0%}: something else runs on this machine; --fresh measures again"
    if regret is not None:
        ratio = f"{regret:.1%} slower than" if regret > 0 else "as fast as"
        yield f"the forecast alone would have chosen a candidate {ratio} the best"
    if chosen is None:
        yield "nothing was chosen: no candidate could be measured"
    elif not chosen.patch:
        yield "chosen: the Plan as it is; nothing that was measured is clearly faster"
    else:
        yield f"chosen: {chosen.label}{_gain(folder.results, chosen)}"
        yield from (f"  {change}" for change in changes(plan, plan.patch(chosen.patch)))
    yield f"jobs: {folder.path}"


def _forecast(result: Result) -> str:
    rate = f"{result.expected_rate:.4g}/s" if result.expected_rate else "?"
    return f"{rate} {format_size(result.expected_memory) if result.expected_memory else '':>9}"


def _measured(result: Result) -> str:
    memory = format_size(result.memory) if result.memory else ""
    if not result.rate or result.state not in ("measured", "slower"):
        return memory
    spread = f" ±{result.spread:.0%}" if result.spread is not None else ""
    return f"{result.rate:.4g}/s{spread} {memory:>9}"


def gain(results: Sequence[Result], chosen: Result) -> float | None:
    """Return the rate of the choice divided by the Plan's own; None if that was not measured."""
    own = next((one for one in merged(results) if not one.patch), None)
    return chosen.rate / own.rate if own is not None and own.rate and chosen.rate else None


def _gain(results: Sequence[Result], chosen: Result) -> str:
    times = gain(results, chosen)
    return f"; {times:.2f} times as fast as the Plan" if times is not None else ""


def as_json(folder: TuneFolder, chosen: Result | None, why: str, regret: float | None = None) -> dict[str, Any]:
    """Return what `dstui tune --json` prints."""
    return {
        "version": 1,
        "ok": chosen is not None,
        "ended": why,
        "folder": str(folder.path),
        "chosen": folder.results.index(chosen) if chosen is not None else None,
        "patch": list(chosen.patch) if chosen is not None else None,
        "forecast_regret": regret,
        "gain": gain(folder.results, chosen) if chosen is not None else None,
        "candidates": [
            {
                "label": one.label, "patch": list(one.patch), "state": one.state, "note": one.note or None, "job": one.job or None,
                "samples_per_second": one.rate, "spread": one.spread, "steps": one.steps, "memory_bytes": one.memory,
                "forecast_samples_per_second": one.expected_rate, "forecast_memory_bytes": one.expected_memory, "seconds": one.seconds,
            }
            for one in folder.results
        ],
    }  # fmt: skip
