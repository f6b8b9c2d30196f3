"""Applying a fix removes its finding and adds no other error."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

import pytest
from cases import CASES, Case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import configs
from dstui.check import PlanFacts, check_config, check_plan
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, load
from dstui.plan.catalogue import DATA, NEWEST
from dstui.plan.finding import Finding, Operation
from dstui.render.target import Target

FACTS = json.loads((DATA / f"deepspeed-{NEWEST}.json").read_text())


def patched(config: dict[str, Any], patch: tuple[Operation, ...]) -> dict[str, Any]:
    """Apply a patch of RFC 6902 (add, replace, remove, move), strictly: a missing parent is an error."""
    config = copy.deepcopy(config)
    for operation in patch:
        if operation["op"] == "move":
            *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["from"].split("/")[1:]]
            at = config
            for name in parents:
                at = at[name]
            operation = {"op": "add", "path": operation["path"], "value": at.pop(last)}
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        at = config
        for name in parents:
            at = at[name]
        if operation["op"] in ("remove", "replace"):
            assert last in at, operation
        if operation["op"] == "remove":
            del at[last]
        else:
            at[last] = operation["value"]
    return config


def errors(findings: list[Finding]) -> Counter[str]:
    """Return the number of errors of each code."""
    return Counter(f.code for f in findings if f.severity == "error")


def same(finding: Finding, other: Finding) -> bool:
    return (finding.code, finding.path) == (other.code, other.path)


@settings(max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(
    configs(FACTS["keys"], list(FACTS["removed"])),
    st.one_of(st.none(), st.integers(1, 8)),
    st.sampled_from(("deepspeed", "trainer", "accelerate")),
)
def test_fix_of_a_generated_configuration_does_what_it_says(config: dict[str, Any], ranks: int | None, reader: str) -> None:
    before = check_config(config, world_size=ranks, integration=reader)
    for finding in before:
        if finding.fix and finding.fix.patch:
            new = patched(config, finding.fix.patch)
            after = check_config(new, world_size=ranks, integration=reader)
            assert not any(same(finding, other) for other in after), (finding, new)
            added = errors(after) - errors(before)
            assert not added, (finding, added, new)


@pytest.mark.parametrize("case", [case for case in CASES if not case.plan], ids=str)
def test_fix_of_a_rule_removes_its_finding_and_adds_no_error(case: Case) -> None:
    options: dict[str, Any] = {"world_size": case.ranks, "integration": case.reader, "deepspeed_version": case.version}
    config = case.config("fires")
    before = check_config(config, case.machine, **options)
    for finding in (f for f in before if f.code == case.code and f.fix and f.fix.patch):
        assert finding.fix and finding.fix.patch
        after = check_config(patched(config, finding.fix.patch), case.machine, **options)
        assert not any(same(finding, other) for other in after), finding
        assert not errors(after) - errors(before), (finding, errors(after) - errors(before))


@pytest.mark.parametrize("case", [case for case in CASES if case.plan], ids=str)
def test_fix_of_a_plan_is_a_patch_that_applies_to_it(case: Case) -> None:
    plan: Plan = load(f"version: 1\n{case.plan}\ndeepspeed: {json.dumps(case.config('fires'))}\n", beneath=case.beneath)
    machine, facts = case.machine or Machine.unprobed(), PlanFacts(script=case.facts("fires"), configs={"": case.model})
    before = check_plan(Target(plan, machine), facts, world_size=case.ranks)
    for finding in (f for f in before if f.code == case.code and f.fix and f.fix.patch):
        assert finding.fix and finding.fix.patch
        after = check_plan(Target(plan.patch(finding.fix.patch), machine), facts, world_size=case.ranks)
        assert not any(same(finding, other) for other in after), finding
        assert not errors(after) - errors(before), finding


@pytest.mark.parametrize(
    ("train", "micro", "steps", "written"),
    [
        (64, 4, 2, {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}),
        (6, 4, 1, {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1}),
        (7, 4, 1, {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}),
    ],
)
def test_requested_batch_size_is_kept_if_whole_numbers_allow(train: int, micro: int, steps: int, written: dict[str, int]) -> None:
    config = {"train_batch_size": train, "train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps}
    (found,) = (f for f in check_config(config, world_size=2) if f.code == "DS002")
    assert found.fix and found.fix.patch
    assert patched(config, found.fix.patch) == written


def test_renamed_key_keeps_its_place_and_comment() -> None:
    text = "version: 1\njob: {script: a}\ndeepspeed:\n  optimzer: {type: AdamW}   # ours\n  train_batch_size: 2\n"
    plan = load(text)
    (found,) = (f for f in check_plan(Target(plan), world_size=1) if f.path == "deepspeed.optimzer")
    assert found.fix and found.fix.patch
    assert plan.patch(found.fix.patch).text == text.replace("optimzer", "optimizer")
