"""The full comparison: 10,000 configurations with the installed DeepSpeed's parser, 2,000 with each older release's.

Older releases are installed into DSTUI_RELEASES (a folder that is created if missing; about 25 s each, once), or skipped without a package
index.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "check"))

from differential import Tally, compare, live_records

from configs import configs
from dstui.check.reference import ReferenceChecker
from dstui.plan.catalogue import DATA, NEWEST, RELEASES
from tests.releases import installed

SEEDS = {"catalogue": 1, "deepspeed": 2}


@pytest.mark.parametrize("source", ["catalogue", "deepspeed"])
@pytest.mark.parametrize("version", reversed(RELEASES))
def test_verdict_equals_the_parsers(version: str, source: str) -> None:
    path = installed(version)
    count = 5000 if version == NEWEST else 1000
    facts = json.loads((DATA / f"deepspeed-{version}.json").read_text()) if source == "catalogue" else live_records(path)
    tally = Tally()

    @seed(SEEDS[source])
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(configs(facts["keys"], list(facts["removed"])), st.integers(1, 16))
    def agree(config: dict[str, object], ranks: int) -> None:
        compare(config, ranks, version, reference, tally)

    with ReferenceChecker(path=path) as reference:
        agree()
    print(f"\nDeepSpeed {version}, keys from the {source}: {tally}")
    for one in tally.differ[:20]:
        print(one)
    assert not tally.differ
