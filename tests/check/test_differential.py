"""Our verdict against DeepSpeed's parser, over generated configurations (a sample; the full counts are in tests/long)."""

from __future__ import annotations

import json

import pytest
from differential import Tally, compare, live_records
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from configs import configs
from dstui.plan.catalogue import DATA, NEWEST
from dstui.run.oracle import Oracle

SAMPLE = settings(max_examples=200, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("source", ["catalogue", "deepspeed"])
def test_our_verdict_is_the_parsers(source: str, deepspeed: Oracle) -> None:
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
    assert tally.refused > 20 and tally.taken > 20, "both verdicts are in the sample"
