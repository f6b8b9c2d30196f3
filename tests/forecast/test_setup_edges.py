"""Edge cases of a setup, and of the largest model that fits."""

from __future__ import annotations

import pytest
import targets

from dstui.forecast.largest import largest
from dstui.forecast.read_setup import setup_of
from dstui.plan import load
from dstui.plan.model import Model


@pytest.mark.parametrize("given, attention", [(None, "sdpa"), ("sdpa", "sdpa"), ("eager", "eager"), ("flash", "flash")])
def test_attention_is_the_plans_or_sdpa(given: str | None, attention: str) -> None:
    setup, _ = setup_of({}, Model(attention=given), "deepspeed", ranks=1, nodes=1, hidden=None)
    assert setup.attention == attention


def test_largest_model_has_no_parameters_if_nothing_fits() -> None:
    plan = load(
        "version: 1\ndeepspeed: {train_micro_batch_size_per_gpu: 100000, bf16: {enabled: true}}\nmodel: {sequence_length: 100000}\n"
    )
    assert largest(plan, targets.TWO_4090) == 0
