"""Errors that dstui says occur in `deepspeed.initialize` or later do so in the real DeepSpeed on CPU ranks, in the same words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parent.parent / "check"))

from cases import CASES, Case
from engines import difference, engines
from test_rules import findings

from dstui.check.reference import ReferenceChecker
from tests.accelerators import fp16_pythonpath


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceChecker]:
    """Start the installed DeepSpeed's `initialize` on CPU ranks that accept fp16, whatever CPU this is."""
    with ReferenceChecker(how="initialize", path=fp16_pythonpath(tmp_path_factory.mktemp("cpu"), fp16=True)) as one:
        yield one


PROVEN = [case for case in CASES if case.proof == "init"]


@pytest.mark.parametrize("case", PROVEN, ids=str)
def test_error_occurs_in_initialize_in_these_words(case: Case, engine: ReferenceChecker) -> None:
    said = [f for f in findings(case, "fires") if f.code == case.code]
    steps = 1 if any(f.when == "run" for f in said) else case.steps
    died = engine.validate(case.config("fires"), case.ranks, steps=steps)
    assert not died.ok
    quotes = {f.why.removeprefix("DeepSpeed: ").removeprefix("… ").removesuffix(" …") for f in said if f.when == died.when}
    assert any(quote in died.message for quote in quotes), (died, said)


def test_verdict_equals_that_of_initialize(engine: ReferenceChecker, count: int = 200) -> None:
    differ: list[str] = []

    @seed(int(os.environ.get("DSTUI_SEED", "1")))
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(engines())
    def agree(config: dict[str, object]) -> None:
        if found := difference(config, engine):
            differ.append(found)

    agree()
    print(f"{count} configurations through deepspeed.initialize on 2 ranks, {len(differ)} verdicts differ")
    for one in differ:
        print(one)
    assert not differ
