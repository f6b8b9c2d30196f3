"""Edges of rules beyond their case in cases.py."""

from __future__ import annotations

import pytest

from dstui.check import check_config
from dstui.check.context import Context
from dstui.check.rules.all_rules import RULES
from dstui.check.rules.machine.requirement import requirement_for
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.plan.catalogue import NEWEST, RELEASES, release


def test_rule_applies_only_to_its_releases() -> None:
    limited = [rule for rule in RULES.values() if (rule.since, rule.until) != (RELEASES[0], NEWEST)]
    for rule in limited:
        reader = rule.readers[0] if rule.readers else "deepspeed"
        applies = [version for version in RELEASES if rule.applies(Context({}, release(version), reader))]
        assert applies == list(RELEASES[RELEASES.index(rule.since) : RELEASES.index(rule.until) + 1]), rule.code
    assert limited


@pytest.mark.parametrize("torch_adam, when, says", [(False, "run", True), (True, "initialize", False)])
def test_auto_among_adam_arguments_fails_later_in_deepspeeds_adam_than_in_torchs(torch_adam: bool, when: str, says: bool) -> None:
    params = {"betas": "auto", "torch_adam": torch_adam}
    found = check_config({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam", "params": params}})
    finding = next(one for one in found if one.code == "DS015")
    assert finding.when == when and ("too many values to unpack" in finding.why) == says


@pytest.mark.parametrize("written, fixed", [(-5, 1), (3.7, 3), (1e20, 1000), ("a", 1000)])
def test_warmup_steps_are_fixed_to_a_valid_number(written: object, fixed: int) -> None:
    scheduler = {"type": "WarmupLR", "params": {"warmup_num_steps": written}}
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam", "params": {}}, "scheduler": scheduler}
    fixes = [one.fix.text for one in check_config(config) if one.fix and one.path == "scheduler.params.warmup_num_steps"]
    assert f"write {fixed}" in fixes


@pytest.mark.parametrize("cluster, nodes", [("{}", 1), ("{hostfile: hosts}", 2), ("{num_nodes: 3}", 3)])
def test_unread_hostfile_counts_as_several_hosts(cluster: str, nodes: int) -> None:
    assert requirement_for(load(f"version: 1\njob: {{script: t.py}}\ncluster: {cluster}\n"), Machine.unprobed()).nodes == nodes


@pytest.mark.parametrize("version, refused", [("0.18.2", (0, 1, 3)), (NEWEST, (0,))])
def test_16_bit_master_weights_need_the_stages_of_their_release(version: str, refused: tuple[int, ...]) -> None:
    fp16 = {"enabled": True, "fp16_master_weights_and_grads": True}
    for stage in range(4):
        config = {"train_micro_batch_size_per_gpu": 1, "fp16": fp16, "zero_optimization": {"stage": stage}}
        found = {one.code for one in check_config(config, deepspeed_version=version)}
        assert ("DS058" in found) is (stage in refused), stage


def test_torchs_adam_slows_offload_at_every_stage_that_offloads() -> None:
    optimizer = {"type": "Adam", "params": {"torch_adam": True}}
    for stage in range(4):
        zero = {"stage": stage, "offload_optimizer": {"device": "cpu"}}
        config = {"train_micro_batch_size_per_gpu": 1, "optimizer": optimizer, "zero_optimization": zero}
        assert ("DS086" in {one.code for one in check_config(config)}) is (stage > 0), stage


@pytest.mark.parametrize("precision, wrong", [({}, False), ({"bf16": {"enabled": True}}, True)])
def test_type_of_buffers_counts_only_for_a_16_bit_model(precision: dict[str, object], wrong: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, **precision, "data_types": {"buffer_dtype": "fp8"}}
    assert ("DS026" in {one.code for one in check_config(config)}) is wrong
