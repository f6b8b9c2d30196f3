"""Checks as a whole: their inputs, what they leave alone, and what "auto" becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dstui.check import check_config, check_plan
from dstui.check.auto_values import FILLED, hidden_size_of, value_of
from dstui.machine.snapshot import Gpu, Machine, Software
from dstui.plan import load
from dstui.render.target import Target

JOB = "version: 1\njob: {script: t.py, args: ['{ds_config}']}\n"


def test_each_of_several_models_is_checked_at_its_path() -> None:
    plan = load(
        JOB.replace("ds_config", "ds_config:actor")
        + "models:\n  actor:\n    deepspeed: {train_batch_size: 2, zero_optimization: {stage: 9}}\n  critic:\n    deepspeed: {train_batch_size: 2}\n"
    )
    found = [f for f in check_plan(Target(plan), world_size=2) if f.severity == "error"]
    assert [(f.code, f.path, f.line) for f in found] == [("DS019", "models.actor.deepspeed.zero_optimization.stage", 5)]


def test_unknown_facts_are_not_judged() -> None:
    config = {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}}
    assert not [f for f in check_config(config) if f.severity == "error"]
    assert not [f for f in check_config(config, Machine.unprobed()) if f.severity == "error"]
    v100 = Machine(source="a test", gpus=(Gpu(index=0, name="Tesla V100", compute_capability="7.0"),))
    assert {f.code for f in check_config(config, v100, world_size=2) if f.severity == "error"} == {"DS002", "DS052"}


def test_world_size_defaults_to_the_plans() -> None:
    plan = load(JOB + "cluster: {hosts: {a: 4, b: 4}}\ndeepspeed: {train_batch_size: 6, train_micro_batch_size_per_gpu: 1}\n")
    assert any("8 (ranks)" in f.message for f in check_plan(Target(plan)))
    assert not any(f.code in ("DS002", "DS005") for f in check_plan(Target(plan), world_size=6))


def test_machines_deepspeed_decides_which_keys_exist() -> None:
    plan = load(JOB + "deepspeed: {train_batch_size: 8, zero_optimization: {stage: 3, mics_shard_size: 8}}\n")
    machine = Machine(source="a test", software=Software(deepspeed="0.16.9+cu124"))
    assert "DS028" in {f.code for f in check_plan(Target(plan))}
    assert "DS028" not in {f.code for f in check_plan(Target(plan, machine))}
    assert "DS028" in {f.code for f in check_plan(Target(plan, machine), deepspeed_version="0.19.8")}


def test_recorded_machine_with_an_invalid_version_counts_as_without_deepspeed() -> None:
    plan = load("version: 1\njob: {script: t.py}\ndeepspeed: {train_batch_size: 1, zenflow: {}}\n")
    said = [check_plan(Target(plan, Machine.unprobed()), world_size=1)]
    said += [
        check_plan(Target(plan, replace(Machine.unprobed(), software=Software(deepspeed=text))), world_size=1)
        for text in ("true", "", "9" * 5000 + ".1")
    ]
    assert all(each == said[0] for each in said)


def test_errors_come_first_and_are_sorted_by_line() -> None:
    found = check_config({"zero_optimizatoin": {}, "fp16": None, "bf16": {"enabld": True}, "train_batch_size": 2}, world_size=2)
    ranks = [("error", "warning", "info").index(f.severity) for f in found]
    assert ranks == sorted(ranks) and ranks[0] == 0


def test_auto_is_valid_depending_on_the_integration() -> None:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
        "zero_optimization": {"stage": 2},
    }
    verdicts = {reader: {f.path for f in check_config(config, integration=reader) if f.severity == "error"} for reader in FILLED}
    assert verdicts["trainer"] == set()
    assert verdicts["accelerate"] == {"optimizer.params.betas"}
    assert verdicts["deepspeed"] >= {"train_micro_batch_size_per_gpu", "optimizer.params.lr"}


def test_model_dependent_values_follow_the_integrations_formula() -> None:
    zero = "zero_optimization."
    assert value_of(zero + "reduce_bucket_size", 4096, 2) == 4096 * 4096
    assert value_of(zero + "stage3_prefetch_bucket_size", 4096, 3) == int(0.9 * 4096 * 4096)
    assert value_of(zero + "stage3_param_persistence_threshold", 4096, 3) == 40960
    assert value_of(zero + "stage3_param_persistence_threshold", 4096, 2) is None
    assert value_of("gradient_clipping", 4096, 3) is None


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"hidden_size": 64}, 64),
        ({"hidden_sizes": [32, 128]}, 128),
        ({"text_config": {"hidden_size": 256}}, 256),
        ({"d_model": 512}, 512),
        ({"width": 512}, None),
    ],
)
def test_hidden_size_is_found_where_the_integrations_look(config: dict[str, object], size: int | None) -> None:
    assert hidden_size_of(config) == size


MISTAKES = {
    "a section that 0.19 has removed": ({"compression_training": {}}, "DS028", "compression_training"),
    "a typo at the top": ({"gradient_cliping": 1.0}, "DS011", "gradient_cliping"),
    "offload beside its section": (
        {"offload_optimizer": {"device": "cpu"}, "zero_optimization": {"stage": 2}},
        "DS011",
        "offload_optimizer",
    ),
    "a key of an accelerate file": ({"zero3_save_16bit_model": True}, "DS011", "zero3_save_16bit_model"),
    "a batch that two ranks cannot share": ({"train_batch_size": 5}, "DS002", "train_batch_size"),
    "an old name": ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, "DS044", "zero_optimization.cpu_offload"),
    "a typo in a section": (
        {"zero_optimization": {"stage": 2, "cpu_offload_params": True}},
        "DS012",
        "zero_optimization.cpu_offload_params",
    ),
    "apex in fp16": ({"fp16": {"opt_level": "O2"}}, "DS012", "fp16.opt_level"),
    "clipping among the optimizer's arguments": (
        {"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}},
        "DS082",
        "optimizer.params.max_grad_norm",
    ),
    "a 1-bit optimizer": ({"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}}, "DS042", "optimizer.type"),
    "no clipping named": ({}, "DS111", "gradient_clipping"),
    "offload without a device": (
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"pin_memory": True}}},
        "DS119",
        "zero_optimization.offload_optimizer",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_common_mistake_is_reported_with_a_fix(name: str) -> None:
    config, code, path = MISTAKES[name]
    whole = {"train_micro_batch_size_per_gpu": 2, **config}
    found = [f for f in check_config(whole, world_size=2) if (f.code, f.path) == (code, path)]
    assert found and found[0].fix is not None, [(f.code, f.path) for f in check_config(whole, world_size=2)]


def test_loss_scaling_in_bf16_is_removed_and_said_to_have_been_ignored() -> None:
    """Published configurations have it: releases before bf16 had a model did not read it."""
    config = {"train_batch_size": 2, "bf16": {"enabled": True, "loss_scale": 0, "hysteresis": 2}}
    found = [f for f in check_config(config, world_size=2) if f.code == "DS012"]
    assert [f.path for f in found] == ["bf16.loss_scale", "bf16.hysteresis"]
    assert all(
        "needs no loss scaling; DeepSpeed 0.16.9 ignored it" in f.message and f.fix and f.fix.text.startswith("remove") for f in found
    )
    assert "DS012" not in {f.code for f in check_config(config, world_size=2, deepspeed_version="0.16.9")}
