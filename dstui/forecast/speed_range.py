"""The range of a forecast of speed: from the slowest to the fastest of what neither the Plan nor the Machine says."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dstui.forecast.architecture import TensorShape
from dstui.forecast.model import Counts
from dstui.forecast.rates import Rates
from dstui.forecast.setup import Setup
from dstui.forecast.speed import Speed, Traffic, Work, hidden, optimizer_seconds, running_seconds, step_seconds, traffic, work

SLOWER, FASTER = 0.7, 1.2
"""The factors by which the speed may be lower or higher for reasons outside the Plan: releases of torch and of the kernels, clocks under a
power limit, a busy host. Nine in ten of the published rows whose settings are known lie within the range (tests/long/test_blind.py)."""
ADAPTED_FASTER, SPLIT_FASTER = 1.35, 1.6
"""The second factor with LoRA, whose kernels some libraries fuse, and with tensor parallelism, whose exchanges waited for 0 to 12 ms
instead of the 2 that are assumed. One in ten of the published rows of either was faster than forecast by more."""
FULL = 0.6
"""The factor for the lower end if a GPU is nearly full, because torch's allocator then frees memory and allocates it again: Llama-3-8B on
2 x A100-80 ran at 47 % of the speed that fits the same table's rows with more GPUs (xtuner/configs/llama/llama3_8b)."""
SLOW_CPUS = 5
"""The factor by which the CPUs' optimizer was slower than assumed where others published it."""
SLOW_HOST = 2.5
"""The factor by which Python was slower than assumed, which only matters if it takes longer than the kernels: 350M with 512 tokens on
3 x V100 took 2 to 2.9 times as long as forecast (github.com/sunzeyeah/RLHF, src/resources/config/deepspeed/Experiment.md)."""
SLOWEST_NETWORK, FASTEST_NETWORK = 1e9, 38e9
"""Bytes per second of a node if its network is not known: 10 Gbit/s Ethernet, and 400 Gbit/s, both less what collectives do not reach."""


class Timed(NamedTuple):
    """One model with its times."""

    setup: Setup
    shape: TensorShape
    counted: Counts
    idle: int
    """Parameters of experts that a token does not use."""
    work: Work
    traffic: Traffic
    adapted: bool
    """True if adapters are trained (LoRA)."""


def ranged(found: Speed, spread: float | None, one: Timed | None, rates: Rates, *, full: bool = False) -> Speed:
    """Return a speed with its range: from the spread of runs on this machine, else from what is not known of a single model.

    `full`: whether the GPU's memory is nearly full.
    """
    if spread is not None:
        return found._replace(range=(found.tokens * (1 - min(spread, 0.9)), found.tokens * (1 + spread)))
    low, high = (
        (slowest(one, found.step, rates), fastest(one, found.step, rates)) if one else (found.tokens * SLOWER, found.tokens * FASTER)
    )
    return found._replace(range=(low * (FULL if full else 1), high))


def slowest(one: Timed, likely: float, rates: Rates) -> float:
    """Return the tokens per second at the lower end: with the slowest of what is not known. `likely`: the seconds of the forecast step."""
    setup, w, t = one.setup, one.work, one.traffic
    steps = [likely]
    late = SLOW_HOST * t.host - max(running_seconds(w, t), t.host)
    if late > 0:
        steps.append(likely + setup.accumulation * late)
    if setup.optimizer_offload != "none" and "cpu_adam" not in rates.measured:
        slow = optimizer_seconds(setup, one.counted, rates, SLOW_CPUS)
        exposed, beside, _ = hidden(setup, one.counted, slow, rates)
        steps.append(step_seconds(setup.accumulation, w, t._replace(optimizer=exposed, beside=beside)))
    if not rates.network_known and "between" not in rates.measured:
        steps.append(_step_with(one, replace(rates, between=SLOWEST_NETWORK)))
    return _tokens(one, max(steps)) * SLOWER


def fastest(one: Timed, likely: float, rates: Rates) -> float:
    """Return the tokens per second at the upper end: with the fastest of what is not known. `likely`: the seconds of the forecast step."""
    steps = [likely]
    if rates.newest_attention:
        steps.append(_step_with(one, replace(rates, attention=rates.newest_attention)))
    if not rates.network_known and "between" not in rates.measured:
        steps.append(_step_with(one, replace(rates, between=FASTEST_NETWORK)))
    faster = SPLIT_FASTER if one.setup.tensor_parallel > 1 else ADAPTED_FASTER if one.adapted else FASTER
    return _tokens(one, min(steps)) * faster


def _step_with(one: Timed, rates: Rates) -> float:
    """Return the seconds of a step with other rates."""
    setup, shape, n = one.setup, one.shape, one.counted
    return step_seconds(setup.accumulation, work(setup, shape, n, one.idle, rates), traffic(setup, shape, n, rates))


def _tokens(one: Timed, step: float) -> float:
    return one.setup.accumulation * one.work.tokens * one.setup.different / step if step else 0.0
