"""Each known regression of DeepSpeed is reported for the releases that have it and a Plan that is affected, and for no other."""

from __future__ import annotations

import datetime

import pytest

from dstui.check import check_plan
from dstui.check.rules.releases import AS_OF, REGRESSIONS, Regression
from dstui.machine.snapshot import Machine, Software
from dstui.plan import Plan, load
from dstui.plan.catalogue import version_tuple
from dstui.plan.finding import Finding
from dstui.render.target import Target

LORA = "model: {params: 7.0e9, activation_checkpointing: true, lora: {r: 8}}"
ADAM = "optimizer: {type: AdamW, params: {lr: 1e-4}}"
MEETS = {
    # link: an affected Plan, and one that just is not; the last release with the regression, and the first without
    "transformers/issues/47254": ((LORA, "zero_optimization: {stage: 3}"), (LORA, "zero_optimization: {stage: 2}"), "0.19.2", "0.19.3"),
    "issues/7718": (("", "zero_optimization: {stage: 2}"), ("", "zero_optimization: {stage: 1}"), "0.18.2", "0.18.3"),
    "issues/7885": (("", "zero_optimization: {stage: 1}"), ("", "zero_optimization: {stage: 0}"), "0.18.6", "0.18.7"),
    "pull/7967": (
        ("", "gradient_accumulation_steps: 4, zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}"),
        ("", "gradient_accumulation_steps: 1, zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}"),
        "0.18.9",
        "0.19.0",
    ),
    "pull/7985": (
        ("", "bf16: {enabled: true}, data_types: {grad_accum_dtype: fp32}, zero_optimization: {stage: 1}"),
        ("", "bf16: {enabled: true}, zero_optimization: {stage: 1}"),
        "0.18.9",
        "0.19.0",
    ),
    "issues/7804": (
        ("", "zero_optimization: {stage: 2, overlap_comm: true}"),
        ("", "zero_optimization: {stage: 2, overlap_comm: false}"),
        "0.18.4",
        "0.18.5",
    ),
    "pull/8214": (
        (LORA, "compile: {deepcompile: true}, zero_optimization: {stage: 3}"),
        ("", "compile: {deepcompile: true}, zero_optimization: {stage: 3}"),
        "0.19.5",
        "0.19.6",
    ),
    "issues/6659": (
        ("", "zero_optimization: {stage: 3, zero_hpz_partition_size: 8}"),
        ("", "zero_optimization: {stage: 3}"),
        "0.19.4",
        "0.19.5",
    ),
}


def plan(model: str, config: str) -> Plan:
    return load(f"version: 1\njob: {{script: t.py}}\n{model}\ndeepspeed: {{train_micro_batch_size_per_gpu: 1, {ADAM}, {config}}}\n")


def findings(given: Plan, version: str) -> list[Finding]:
    """Return the findings for an interpreter with this release."""
    return [f for f in check_plan(Target(given, Machine(source="a test", software=Software(deepspeed=version)))) if f.code == "KR001"]


@pytest.mark.parametrize("known", REGRESSIONS, ids=lambda known: known.link.rpartition("com/")[2])
def test_regression_is_reported_for_an_affected_plan(known: Regression) -> None:
    link = next(link for link in MEETS if known.link.endswith(link))
    meets, passes, last, first = MEETS[link]
    found = [f for f in findings(plan(*meets), last) if known.link in f.why]
    assert found and found[0].severity == "warning" and found[0].fix is not None and first in found[0].fix.text
    for given, version in ((meets, first), (passes, last)):
        assert not [f for f in findings(plan(*given), version) if known.link in f.why]


def test_table_is_dated_and_releases_are_in_order() -> None:
    assert datetime.date.fromisoformat(AS_OF)
    assert all(version_tuple(known.since) < version_tuple(known.fixed) for known in REGRESSIONS)
    assert len({known.link for known in REGRESSIONS}) == len(REGRESSIONS)


def test_nothing_is_claimed_without_a_release() -> None:
    meets = MEETS["issues/7718"][0]
    assert [f for f in check_plan(Target(plan(*meets), Machine(source="a test"))) if f.code == "KR001"] == []


@pytest.mark.parametrize(
    ("link", "last_without"), [("issues/6659", "0.14.3"), ("pull/7985", "0.18.2"), ("pull/8214", "0.16.5"), ("issues/7718", "0.17.5")]
)
def test_earlier_release_is_not_warned_about(link: str, last_without: str) -> None:
    assert not [f for f in findings(plan(*MEETS[link][0]), last_without) if link in f.why]
