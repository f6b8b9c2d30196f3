"""Model states compared to DeepSpeed: two CPU ranks train, and every tensor that they hold is counted.

This is a sample; tests/long/test_forecast_ranks.py has the grid of stages, precisions, optimizers and offload.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from measured import GPT2, Ranks, config_of, forecast_of, held

pytestmark = pytest.mark.xdist_group("forecast ranks")


SMALL = {**GPT2, "n_layer": 2}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Start one child for all tests: its imports take longer than a training."""
    with Ranks() as child:
        yield child


@pytest.mark.parametrize(("stage", "precision"), [(3, "bf16, 32-bit gradients")])
def test_each_rank_holds_what_the_forecast_says_by_part(ranks: Ranks, stage: int, precision: str) -> None:
    config = config_of(stage, precision)
    answer = ranks.measure(config, SMALL, steps=2, sequence=32)
    assert not answer["error"], answer
    reported = held(forecast_of(config, SMALL)[0])
    for found in answer["ranks"]:
        really = {part: size for part, size in found["stepped"].items() if part != "other"}
        assert sum(found["stepped"].values()) == pytest.approx(sum(reported.values()), rel=0.01)
        assert really == {part: pytest.approx(size, rel=0.01) for part, size in reported.items()}
