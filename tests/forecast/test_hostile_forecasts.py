"""Any Plan, config.json or measurement gives a forecast, a table, a recommendation and findings, or a message."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dstui.forecast.choices import table
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import forecast
from dstui.forecast.model import ModelFacts, facts_of_config, facts_of_params
from dstui.forecast.presets import presets
from dstui.forecast.recommend import recommend
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, PlanError, load
from tests.forecast.targets import EIGHT_H100, NO_GPU, ONE_4090, TWO_NODES, facts

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(
        ["auto", "", "cpu", "nvme", "none", "fp16", "5e8", "1e400", "-1", "{}", "AdamW", "Muon", "OneBitAdam", "\x1b[31m", "é" * 40]
    ),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=5
)
DEEPSPEED = (
    *(
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "zero_optimization",
        "optimizer",
        "bf16",
        "fp16",
    ),
    *(
        "zero_optimization.stage",
        "zero_optimization.offload_optimizer",
        "zero_optimization.offload_param",
        "zero_optimization.sub_group_size",
    ),
    *("zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.ratio", "zero_optimization.offload_param.device"),
    *("zero_optimization.offload_param.buffer_count", "zero_optimization.reduce_bucket_size", "zero_optimization.overlap_comm"),
    *("zero_optimization.stage3_max_reuse_distance", "zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.cpu_offload"),
    *("zero_optimization.stage3_param_persistence_threshold", "zero_optimization.zero_hpz_partition_size", "zero_optimization.zenflow"),
    *("optimizer.type", "optimizer.params", "optimizer.params.torch_adam", "bf16.enabled", "fp16.enabled", "data_types.grad_accum_dtype"),
    *("torch_autocast", "torch_autocast.enabled", "tensor_parallel.autotp_size", "sequence_parallel_size", "pipeline", "amp", "aio"),
)
MODEL = ("source", "params", "sequence_length", "activation_checkpointing", "trainable", "quantization", "attention", "fused_loss", "lora")
EDITS = st.dictionaries(st.sampled_from(DEEPSPEED), VALUES, max_size=6)
MODELS = st.dictionaries(st.sampled_from(MODEL), VALUES | st.floats(1, 1e13) | st.integers(1, 10**6), max_size=4)
MACHINES = {
    "8 x H100": EIGHT_H100,
    "no GPU": NO_GPU,
    "one GPU": ONE_4090,
    "two nodes": TWO_NODES,
    "nobody looked": Machine.unprobed(),
    "nothing": Machine(source="a test"),
}
PLAN = "version: 1\njob: {script: train.py}\n"
SLOW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Return dotted names as nested dictionaries; a value in the way of a longer name is replaced."""
    made: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        here = made
        for parent in parents:
            if not isinstance(here.get(parent), dict):
                here[parent] = {}
            here = here[parent]
        here[last] = value
    return made


def plan_of(deepspeed: dict[str, Any], model: dict[str, Any]) -> Plan | None:
    """Return a Plan with these values, if the loader accepts it."""
    try:
        return load(
            PLAN + "".join(f"{key}: {json.dumps(nested(what))}\n" for key, what in (("deepspeed", deepspeed), ("model", model)) if what)
        )
    except (PlanError, ValueError):
        return None


def run_everything(plan: Plan, known: ModelFacts, machine: Machine, measured: Any = None) -> None:
    """Compute everything that a face asks for, and write each answer as JSON."""
    found = forecast(plan, known, machine, measured=measured)
    json.dumps(found.as_json(), allow_nan=False)
    assert found.problem or found.params is not None
    for need in (found.gpu, found.host, found.nvme):
        assert need.bytes is None or need.bytes >= 0
    assert all(isinstance(told.verdict, str) for told in table(plan, known, machine).values())
    for finding in findings_of(plan, known, machine, None, found):
        json.dumps(finding.as_json())
    ranked = recommend(plan, known, machine)
    json.dumps([row.as_json() for row in ranked.rows], allow_nan=False)
    for row in ranked.rows[:3]:
        plan.patch(row.patch)
    assert ranked.rows or ranked.ways or ranked.problem or ranked.candidates


@given(EDITS, MODELS, st.sampled_from(sorted(MACHINES)))
@SLOW
def test_no_deepspeed_or_model_value_breaks_a_forecast(deepspeed: dict[str, Any], model: dict[str, Any], machine: str) -> None:
    if (plan := plan_of(deepspeed, model)) is not None:
        run_everything(plan, facts("meta-llama/Llama-2-7b-hf"), MACHINES[machine])


@given(st.sampled_from(sorted(presets())), st.data(), st.sampled_from(sorted(MACHINES)))
@SLOW
def test_no_config_json_breaks_a_forecast(name: str, data: st.DataObject, machine: str) -> None:
    config = dict(presets()[name])
    keys = st.sampled_from(sorted({*config, "vocab_size", "num_experts", "quantization_config", "text_config", "architectures"}))
    config |= data.draw(st.dictionaries(keys, VALUES, max_size=4))
    plan = plan_of({"zero_optimization.stage": 3, "train_micro_batch_size_per_gpu": 2}, {"sequence_length": 2048})
    assert plan is not None
    known = facts_of_config(config)
    if known.problem:
        assert known.problem.strip()
        assert forecast(plan, known, MACHINES[machine]).problem
    else:
        run_everything(plan, known, MACHINES[machine])


@pytest.mark.parametrize("params", [1, 7, 1e3, 1e6, 7e9, 1e15])
def test_any_number_of_parameters_is_forecast(params: float) -> None:
    for lora in ({}, {"lora": {"r": 8, "target_modules": ["q_proj"]}}, {"trainable": 1, "quantization": "nf4"}):
        plan = plan_of({"zero_optimization.stage": 3}, lora)
        assert plan is not None
        for machine in (EIGHT_H100, NO_GPU, Machine.unprobed()):
            run_everything(plan, facts_of_params(params), machine)


@pytest.mark.parametrize("value", [None, True, "fast", math.nan, math.inf, -1, 0, 1e300, [], {}])
def test_invalid_measurement_is_ignored(value: Any) -> None:
    plan = plan_of({"zero_optimization.stage": 3}, {})
    assert plan is not None
    run_everything(plan, facts("meta-llama/Llama-2-7b-hf"), EIGHT_H100, {"flops": value, "inside": value, "memory": value})


@pytest.mark.parametrize("zero", [True, [None], "3", {"stage": 3, "offload_optimizer": "cpu"}])
def test_fix_replaces_an_invalid_zero_section(zero: Any) -> None:
    plan = plan_of({"zero_optimization": zero, "train_micro_batch_size_per_gpu": 32}, {"sequence_length": 4096})
    assert plan is not None
    run_everything(plan, facts("meta-llama/Llama-2-7b-hf"), EIGHT_H100)
    (found,) = [finding for finding in findings_of(plan, facts("meta-llama/Llama-2-7b-hf"), EIGHT_H100) if finding.code == "FC001"]
    assert found.fix is not None
    assert found.fix.patch is not None
    assert forecast(plan.patch(found.fix.patch), facts("meta-llama/Llama-2-7b-hf"), EIGHT_H100).fits
