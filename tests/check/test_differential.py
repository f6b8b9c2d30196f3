"""dstui's verdict against DeepSpeed's parser on generated configurations (a sample; tests/long has more, and older releases)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import ADAM
from differential import Tally, compare, live_records
from engines import difference, engines
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from configs import configs
from dstui.check.reference import ReferenceChecker
from dstui.plan.catalogue import DATA, NEWEST
from tests.accelerators import fp16_pythonpath

SAMPLE = settings(max_examples=100, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("source", ["catalogue", "deepspeed"])
def test_verdict_equals_the_parsers(source: str, deepspeed: ReferenceChecker) -> None:
    facts = json.loads((DATA / f"deepspeed-{NEWEST}.json").read_text()) if source == "catalogue" else live_records()
    tally = Tally()

    @seed(len(source) + source.count("d"))
    @SAMPLE
    @given(configs(facts["keys"], list(facts["removed"])), st.integers(1, 16))
    def agree(config: dict[str, object], ranks: int) -> None:
        compare(config, ranks, NEWEST, deepspeed, tally)

    agree()
    print(tally)
    assert not tally.differ, tally.differ[:3]
    assert tally.refused > 20 and tally.taken > 20, "the sample has both verdicts"


@pytest.mark.parametrize("fp16", [pytest.param(True, marks=pytest.mark.twin), False], ids=["a CPU with fp16", "a CPU without"])
def test_verdict_equals_that_of_initialize(fp16: bool, tmp_path: Path) -> None:
    """Runs for CPUs with and without fp16, whichever this one is: DeepSpeed's own answer is overridden."""
    differ: list[str] = []

    @seed(1)
    @settings(SAMPLE, max_examples=3)
    @given(engines())
    def agree(config: dict[str, object]) -> None:
        if found := difference(config, engine):
            differ.append(found)

    with ReferenceChecker(how="initialize", path=fp16_pythonpath(tmp_path, fp16=fp16)) as engine:
        assert engine.types()["fp16"] is fp16
        agree()
        refused = {"train_micro_batch_size_per_gpu": 1, **ADAM, "fp16": {"enabled": True}}
        assert difference(refused, engine) == ""
        assert engine.validate(refused, 2).ok is fp16
    assert not differ
