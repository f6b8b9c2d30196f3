"""The range of a forecast of speed, and the copies of gradients to an optimizer in RAM."""

from __future__ import annotations

from typing import Any

import pytest
from targets import EIGHT_H100, facts, plan

from dstui.forecast.forecast import forecast
from dstui.forecast.hardware import named_machine
from dstui.forecast.model import counts
from dstui.forecast.rates import Rates
from dstui.forecast.setup import Setup
from dstui.forecast.speed import traffic, work
from dstui.machine.snapshot import Machine

LLAMA = "meta-llama/Llama-3.1-8B"
RATES = Rates(flops=3e14, inside=2e11, host_link=25e9)


def ends(machine: Machine, nodes: int = 1, **sets: Any) -> tuple[float, float]:
    """Return the ends of the range as shares of the forecast."""
    speed = forecast(plan(LLAMA, nodes=nodes, model__activation_checkpointing=True, **sets), facts(LLAMA), machine).speed
    assert speed is not None
    return speed.range[0] / speed.tokens, speed.range[1] / speed.tokens


def test_unknown_network_widens_both_ends() -> None:
    unknown, known = (ends(named_machine("8xA100-80", 2, link, 1 << 40), 2, stage=3, steps=1) for link in (None, "eth-100"))
    assert unknown[0] < known[0] / 2 and unknown[1] > known[1] * 1.5


def test_steps_that_python_bounds_begin_at_a_slow_host() -> None:
    short, long = (ends(EIGHT_H100, stage=3, micro=1, sequence=length) for length in (256, 8192))
    assert short[0] < 0.6 * long[0] and short[1] == pytest.approx(long[1])


def test_adapters_may_be_faster_than_forecast() -> None:
    whole, adapters = (ends(EIGHT_H100, stage=2, micro=2, model__lora=lora) for lora in (None, {"r": 8}))
    assert adapters[1] > whole[1]


def copies(**sets: Any) -> float:
    """Return how often the gradients of a rank are copied in each micro-batch."""
    shape, n = (one := facts(LLAMA)).shape, counts(one, None)
    assert shape is not None and n is not None
    setup = Setup(ranks=8, optimizer_offload="cpu")._replace(**sets)
    return traffic(setup, shape, n, RATES).copies / (2 * n.trained / 8 / RATES.host_link)


@pytest.mark.parametrize(
    ("stage", "accumulation", "times"),
    [(1, 8, 0), (2, 1, 1), (2, 8, 2), (3, 1, 2), (3, 8, 2)],
)
def test_gradients_are_copied_as_often_as_deepspeed_copies_them(stage: int, accumulation: int, times: int) -> None:
    assert copies(stage=stage, accumulation=accumulation) == pytest.approx(times)
    assert copies(stage=stage, accumulation=accumulation, optimizer_offload="none") == 0


def test_exchanges_wait_less_if_the_norms_are_split() -> None:
    shape, n = (one := facts(LLAMA)).shape, counts(one, None)
    assert shape is not None and n is not None
    setup = Setup(ranks=8, tensor_parallel=8, megatron=True, micro_batch=1, sequence=4096)
    alone, split = (work(setup._replace(norms_split=norms), shape, n, 0, RATES).compute for norms in (False, True))
    waits = 32 * 2 * 2  # two exchanges of a layer in each of two passes
    assert (alone - split) / waits == pytest.approx(1.7e-3, rel=0.25)  # less norms also take less time
