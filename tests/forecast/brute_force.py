"""Compare the plan search to a forecast of every plan: `python tests/forecast/brute_force.py` prints 20 problems.

The variations are written independently of `dstui.forecast.plan_search`, so that a dimension or combination which the search omits is
noticed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from targets import EIGHT_H100, EIGHT_H200, FOUR_A100, NVME, ONE_4090, TWO_4090, TWO_NODES, facts, machine, plan

from dstui.forecast.capacity import capacity_of
from dstui.forecast.forecast import rates_for
from dstui.forecast.hardware import named_machine
from dstui.forecast.modelled import models_of
from dstui.forecast.recommend import RankedPlans, forecast_of, recommend
from dstui.forecast.setup import Setup
from dstui.machine.snapshot import Machine
from dstui.plan import Plan

SLOW = named_machine("8xA100-80", 4, "eth-25", 1 << 40)
GRACE = named_machine("4xGH200-96", ram=1 << 40)
SMALL = machine("NVIDIA L4", 4, 22.5, ram=24, cores=8, disks=NVME)
L3, L7, L13, L70 = (f"meta-llama/{name}" for name in ("Llama-3.2-1B", "Llama-2-7b-hf", "Llama-2-13b-hf", "Llama-2-70b-hf"))


class Problem(NamedTuple):
    """A model on a machine: samples of a step for each rank, tokens of a sample, nodes."""

    model: str
    where: Machine
    samples: int
    sequence: int = 2048
    nodes: int = 1


PROBLEMS = (
    Problem(L3, ONE_4090, 8), Problem(L3, TWO_4090, 8), Problem(L7, TWO_4090, 4), Problem(L3, SMALL, 8), Problem(L7, SMALL, 4),
    Problem(L7, FOUR_A100, 8), Problem(L13, FOUR_A100, 8), Problem(L3, EIGHT_H100, 12), Problem(L7, EIGHT_H100, 16),
    Problem(L13, EIGHT_H100, 6), Problem(L70, EIGHT_H100, 4), Problem(L7, EIGHT_H200, 8), Problem(L70, EIGHT_H200, 4),
    Problem(L7, EIGHT_H100, 2, 16_384), Problem(L7, TWO_NODES, 8, 2048, 2), Problem(L13, TWO_NODES, 8, 2048, 2),
    Problem(L70, TWO_NODES, 4, 2048, 2), Problem(L13, SLOW, 8, 4096, 4), Problem(L70, SLOW, 4, 4096, 4), Problem(L7, GRACE, 4, 4096),
)  # fmt: skip
OFFLOADS = (("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "none"), ("nvme", "nvme"))


def every(was: Setup, per_node: int) -> Iterator[Setup]:
    """Yield every setup with the same number of samples per step."""
    samples = was.micro_batch * was.accumulation
    batches = [(m, samples // m, again) for m in range(1, samples + 1) if samples % m == 0 for again in (False, True)]
    for stage, (optimizer, param) in product(range(4), OFFLOADS):
        if ((param != "none" or optimizer == "nvme") and stage < 3) or (optimizer != "none" and stage == 0):
            continue
        second = sorted({1, per_node // 2, per_node} - {0}) if was.nodes > 1 and stage == 3 and param == "none" else [1]
        quantized = [(False, False), (True, False), (True, True)] if len(second) > 1 else [(False, False)]
        ahead = [False, True] if stage == 3 and optimizer == "cpu" else [False]
        overlaps = [True] if stage == 3 else [False] if stage == 0 else [False, True]
        groups = [10**9, 10**8] if stage == 3 else [was.sub_group]
        for overlap, bucket, group, hpz, (weights, gradients), early in product(
            overlaps, (5 * 10**8, 5 * 10**7), groups, second, quantized, ahead
        ):
            way = was._replace(stage=stage, optimizer_offload=optimizer, param_offload=param, overlap=overlap, reduce_bucket=bucket)  # type: ignore[arg-type]
            way = way._replace(
                sub_group=group, secondary=hpz, quantized_weights=weights, quantized_gradients=gradients, super_offload=early
            )
            for micro, accumulation, again in batches:
                yield way._replace(micro_batch=micro, accumulation=accumulation, checkpointing=again)


def best_of_all(problem: Problem) -> tuple[float, Setup | None, int]:
    """Return the tokens per second of the fastest plan that fits, that plan, and the number of plans tried."""
    given = plan_of(problem)
    known = facts(problem.model)
    room = capacity_of(given, problem.where)
    models, _notes = models_of(given, known, room, problem.where)
    rates = rates_for(models, room, problem.where, None)
    best, fastest, count = 0.0, None, 0
    for setup in every(models[0].setup, room.ranks_per_node):
        if (setup.super_offload and rates.host_link < 1e11) or ("nvme" in setup and not room.nvme):
            continue
        count += 1
        found = forecast_of(models[0], setup, room, rates)
        if found.verdict == "fits" and found.speed and found.speed.tokens > best:
            best, fastest = found.speed.tokens, setup
    return best, fastest, count


def plan_of(problem: Problem) -> Plan:
    return plan(problem.model, stage=2, steps=problem.samples, sequence=problem.sequence, nodes=problem.nodes)


def searched(problem: Problem) -> tuple[RankedPlans, float]:
    """Return the search's result and the milliseconds of CPU time that it took."""
    given, known = plan_of(problem), facts(problem.model)
    start = time.process_time()
    found = recommend(given, known, problem.where)
    return found, (time.process_time() - start) * 1e3


def regret(problem: Problem) -> tuple[float, str]:
    """Return how much slower the first row is than the best plan, as a fraction, and a line that reports it."""
    found, took = searched(problem)
    best, fastest, count = best_of_all(problem)
    sure = found.rows and found.rows[0].verdict == "fits"
    ours = found.rows[0].speed.tokens if sure and found.rows[0].speed else 0.0
    lost = 1 - ours / best if best else 0.0
    name = f"{problem.model.split('/')[1]} on {problem.nodes} x {len(problem.where.gpus)} {problem.where.gpus[0].name}, {problem.sequence} tokens"
    row = found.rows[0].why.partition(";")[0] if found.rows else "nothing fits"
    told = (
        f"{name:<64} {count:>6} by force {best:9,.0f}  {found.candidates:>6} searched in {took:5.1f} ms {ours:9,.0f}  {lost:+6.1%}  {row}"
    )
    return lost, told + (f"  BEST: {fastest}" if lost > 0.05 and fastest else "")


if __name__ == "__main__":
    for one in PROBLEMS:
        print(regret(one)[1], flush=True)
