"""Features that change memory or speed: long sequences, ZeRO variants, experts, and RAM by moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from targets import EIGHT_H100, GB, NO_GPU, facts, plan

from dstui.forecast.activations import activations
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import Forecast, forecast
from dstui.forecast.hardware import named_machine
from dstui.forecast.model import counts, facts_of_config, facts_of_params, stored_as
from dstui.forecast.pipeline import ends
from dstui.forecast.rates import Rates, rates_of
from dstui.forecast.setup import Setup
from dstui.forecast.speed import step_seconds, traffic, work
from dstui.machine.snapshot import Software
from dstui.plan import load

LLAMA = "meta-llama/Llama-3.1-8B"
LONG: dict[str, Any] = {"model__activation_checkpointing": True, "model__fused_loss": True, "model__attention": "flash"}


def found(*, machine: Any = EIGHT_H100, model: str = LLAMA, **sets: Any) -> Forecast:
    return forecast(plan(model, **sets), facts(model), machine)


def gpu(**sets: Any) -> int:
    need = found(**sets).gpu.bytes
    assert need
    return need


def speed(**sets: Any) -> float:
    result = found(**sets).speed
    assert result
    return result.tokens


def test_half_million_token_sequence_needs_its_features_to_fit() -> None:
    sequence = {"stage": 3, "sequence": 500_000, **LONG}
    offload = {"deepspeed__zero_optimization__offload_optimizer": {"device": "cpu"}}
    plain, waiting = gpu(**sequence, **offload), gpu(**sequence, **offload, model__activation_offload=True)
    tiled = gpu(**sequence, **offload, model__activation_offload=True, model__tiled_mlp=True)
    spread = gpu(**sequence, **offload, model__activation_offload=True, model__tiled_mlp=True, deepspeed__sequence_parallel_size=8)
    assert plain > 1.5 * waiting and waiting > 1.1 * tiled > 2.5 * spread
    assert spread < 79 * GB < plain


def test_activations_offloaded_to_ram_use_ram_and_cost_copies() -> None:
    sets = {"stage": 3, "sequence": 65_536, **LONG}
    here, away = found(**sets), found(**sets, deepspeed__activation_checkpointing={"cpu_checkpointing": True})
    assert away.host.parts["activations"] == pytest.approx(8 * 2 * 4096 * 32 * 65_536, rel=0.01)
    assert here.gpu.bytes and away.gpu.bytes and here.gpu.bytes - away.gpu.bytes > 10 * GB
    assert here.speed and away.speed and away.speed.step >= here.speed.step


def test_kernels_of_liger_and_tiles_need_what_was_measured() -> None:
    """On the CPU, in bytes per token and hidden element of LLaMA 8B's ratios: the peak of a layer that runs again."""
    shape = facts(LLAMA).shape
    assert shape is not None
    length = 32 * shape.hidden
    for more, measured, flash in (
        ({}, 66.2, 0),
        ({"liger": True}, 42.3, 0),
        ({"tiled_mlp": True}, 40.2, 0),
        ({"liger": True, "tiled_mlp": True}, 22.0, 7),  # FlashAttention's gradients, and grouped keys, which save less than measured
    ):
        setup = Setup(sequence=length, checkpointing=True, attention="flash", fused_loss="liger" in more)._replace(**more)
        assert activations(setup, shape).work / length / shape.hidden == pytest.approx(measured + flash, abs=0.5), more


def test_layers_that_do_not_run_again_keep_less_with_liger() -> None:
    """Each norm keeps its input in 16 bits instead of a copy in 32 and a normalized one, which only a trained weight needs."""
    shape = facts(LLAMA).shape
    assert shape is not None
    for frozen, saved in ((False, 8 * shape.hidden + 2 * shape.ffn), (True, 4 * shape.hidden + 2 * shape.ffn)):
        plain, fused = (
            activations(Setup(sequence=2048, attention="flash", fused_loss=True, liger=on), shape, frozen=frozen).kept
            for on in (False, True)
        )
        assert plain - fused == pytest.approx(saved * shape.layers * 2048)


def test_an_option_of_the_launch_says_that_kernels_are_ligers() -> None:
    one, other = (gpu(stage=3, micro=8, sequence=8192, **LONG, job__args=["--use_liger_kernel", on]) for on in ("True", "False"))
    assert other - one == pytest.approx(8 * 8192 * (0.1 * 4096 + 2.5 * 14336), rel=0.15)


def test_split_sequences_keep_the_result_of_the_attention_twice() -> None:
    """Once by heads and once by tokens; beyond 8 ranks, each of LLaMA's 8 heads of keys and values is on several ranks."""
    shape = facts(LLAMA).shape
    assert shape is not None
    for ranks, copies in ((8, 0), (32, 24)):
        whole, split = (
            activations(Setup(sequence=65_536 * parts, sequence_parallel=parts, attention="flash"), shape).kept for parts in (1, ranks)
        )
        assert (split - whole) / (2 * shape.layers * 65_536) == pytest.approx(shape.hidden + 2 * copies * shape.head_dim)


def test_selective_recomputation_is_between_none_and_all() -> None:
    sets = {"stage": 3, "micro": 2, "sequence": 4096}
    kinds = ((False, "full"), (True, "attention"), (True, "selective"), (True, "full"))
    each = [
        found(**sets, model__activation_checkpointing=on, model__recompute=kind, model__attention="eager") for on, kind in kinds
    ]  # with another attention than eager, there is no matrix to recompute
    sizes = [f.gpu.bytes or 0 for f in each]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4
    speeds = [f.speed.tokens for f in each if f.speed and f is not each[2]]  # selective recomputes no attention
    assert speeds == sorted(speeds, reverse=True)


def test_zenflow_and_superoffload_hide_the_cpu_optimizer_and_need_more_memory() -> None:
    offload = {"device": "cpu", "pin_memory": True}
    sets = {"stage": 3, "sequence": 4096}
    plain = found(**sets, deepspeed__zero_optimization__offload_optimizer=offload)
    flow = found(**sets, deepspeed__zero_optimization={"stage": 3, "offload_optimizer": offload, "zenflow": {"topk_ratio": 0.05}})
    ahead = found(**sets, deepspeed__zero_optimization__offload_optimizer={**offload, "super_offload": True})
    for other in (flow, ahead):
        assert other.speed and plain.speed and other.speed.tokens > plain.speed.tokens
        assert other.gpu.bytes and plain.gpu.bytes and other.gpu.bytes > plain.gpu.bytes
        assert not any("not reckoned" in sentence for sentence in other.unknown)
    assert flow.host.bytes and plain.host.bytes and flow.host.bytes > plain.host.bytes


def test_tensor_parallel_ranks_hold_part_of_the_weights_and_communicate_in_every_layer() -> None:
    whole, split = found(stage=1, micro=2), found(stage=1, micro=2, deepspeed__tensor_parallel={"autotp_size": 4})
    assert split.gpu.parts["weights"] == pytest.approx(whole.gpu.parts["weights"] / 4, rel=0.01)
    assert split.speed and whole.speed and split.speed.tokens < whole.speed.tokens


def test_megatrons_ranks_split_the_logits_the_network_and_the_layers_of_a_pipeline() -> None:
    """AutoTP gathers the logits, Megatron does not. Both send each rank's own part through the network of the node."""
    shape, n = (one := facts(LLAMA)).shape, counts(one, None)
    assert shape is not None and n is not None
    auto = Setup(ranks=32, nodes=4, stage=3, tensor_parallel=4, micro_batch=2, sequence=4096)
    own = auto._replace(split_logits=True)
    assert activations(own, shape).loss == pytest.approx(activations(auto, shape).loss / 4, rel=0.1)
    rates = Rates(flops=3e14, inside=2e11, between=5e10)
    assert traffic(own, shape, n, rates).micro == pytest.approx(traffic(own._replace(tensor_parallel=1), shape, n, rates).micro, rel=0.2)
    deep, flat = (work(own._replace(pipeline=pipes, accumulation=1000), shape, n, 0, rates).compute for pipes in (4, 1))
    assert flat / 4 < deep < 1.25 * flat / 4  # the last stage also has the head


def test_optimizer_steps_over_what_its_rank_holds() -> None:
    """ZeRO shards the optimizer from stage 1 on; split tensors and layers are never whole on a rank."""
    shape, n = (one := facts(LLAMA)).shape, counts(one, None)
    assert shape is not None and n is not None

    def seconds(**sets: Any) -> float:
        return traffic(Setup(ranks=8)._replace(**sets), shape, n, Rates(flops=3e14)).optimizer

    for sets in ({"stage": 1}, {"tensor_parallel": 8}, {"stage": 1, "tensor_parallel": 2, "pipeline": 2}):
        assert seconds(**sets) == pytest.approx(seconds() / 8)


def test_step_of_split_tensors_takes_at_least_as_long_as_in_megatron() -> None:
    """22B on 8 x A100, 1.42 s with recomputation and 1.10 s without (Korthikanti et al., table 5); DeepSpeed's exchanges take longer."""
    config = {"model_type": "gpt2", "n_embd": 6144, "n_layer": 48, "n_head": 64, "vocab_size": 51200, "n_positions": 2048}
    shape, n = (one := facts_of_config(config)).shape, counts(one, None)
    assert shape is not None and n is not None
    setup = Setup(ranks=8, tensor_parallel=8, split_logits=True, megatron=True, attention="eager", micro_batch=4, stage=1)
    rates = rates_of(named_machine("8xA100-80"), range(8))
    for again, published in ((True, 1.42), (False, 1.10)):
        mine = setup._replace(checkpointing=again)
        assert 1 < step_seconds(1, work(mine, shape, n, 0, rates), traffic(mine, shape, n, rates)) / published < 1.4


def test_quantized_weights_take_time_to_unpack() -> None:
    plain, packed = (speed(stage=2, model__lora={"r": 8}, model__quantization=kind) for kind in (None, "nf4"))
    given = plan(LLAMA, stage=2, model__lora={"r": 8})
    gptq = forecast(given, stored_as(facts(LLAMA), "4 bits"), EIGHT_H100).speed
    assert gptq and gptq.tokens < 0.95 * packed < 0.94 * plain


def test_python_bounds_short_micro_batches_of_adapters() -> None:
    def bound(sequence: int) -> str:
        result = found(stage=2, sequence=sequence, model__lora={"r": 8}).speed
        assert result
        return result.bound_by

    assert (bound(256), bound(8192)) == ("Python between the kernels", "compute")


def test_megatrons_layers_keep_what_its_authors_say() -> None:
    """Korthikanti et al., table 2: s b h (10 + 24 / t + 5 a s / (h t)); less for ranks that split the norms; no matrix in FlashAttention."""
    shape, n = (one := facts("gpt2-xl")).shape, counts(one, None)
    assert shape is not None and n is not None
    setup = Setup(ranks=4, tensor_parallel=4, megatron=True, attention="eager", sequence=1024)
    each = 1024 * shape.hidden * shape.layers
    for changed, expected in (
        ({}, 10 + 24 / 4 + 5 * shape.heads * 1024 / (shape.hidden * 4)),
        ({"norms_split": True}, 34 / 4 + 5 * shape.heads * 1024 / (shape.hidden * 4)),
        ({"attention": "flash"}, 10 + 24 / 4),
    ):
        assert activations(setup._replace(**changed), shape).kept == pytest.approx(each * expected, rel=0.001)


def test_megatrons_gated_layers_keep_what_its_modules_save() -> None:
    """Two norms and their results on every rank, and by rank: queries, keys, values, result, three matrices of the MLP, softmax."""
    shape, n = (one := facts(LLAMA)).shape, counts(one, None)
    assert shape is not None and n is not None
    setup = Setup(ranks=4, tensor_parallel=4, megatron=True, attention="eager", sequence=1024)
    h, keys, wide, matrix = shape.hidden, shape.kv_heads * shape.head_dim, shape.ffn, shape.heads * 1024
    for changed, expected in (
        ({}, 8 * h + (4 * h + 4 * keys + 8 * wide + 2 * matrix) / 4),
        ({"norms_split": True, "attention": "flash"}, (12 * h + 4 * keys + 8 * wide) / 4),
    ):
        assert activations(setup._replace(**changed), shape).kept == pytest.approx(1024 * shape.layers * expected)


@pytest.mark.parametrize(
    ("placed", "release", "per_weight"), [("default", "4.57.0", 4), ("default", "5.0", 2), ("torch.bfloat16", "4.57", 2)]
)
def test_model_loaded_onto_the_gpu_is_there_whole_before_it_is_converted(placed: str, release: str, per_weight: int) -> None:
    """A script with device_map on 8 GPUs of 24 GB, the optimizer in RAM: without it 8B need the weights in 16 bits."""
    away = plan(LLAMA, stage=2, deepspeed__zero_optimization__offload_optimizer={"device": "cpu"})
    machine = replace(EIGHT_H100, software=Software(transformers=release))
    plain, whole = (forecast(away, replace(facts(LLAMA), placed=how), machine) for how in ("", placed))
    assert plain.params and whole.gpu.moments["initialize"] >= per_weight * plain.params > plain.gpu.moments["initialize"] * (
        per_weight == 4
    )
    assert any("device_map" in sentence for sentence in whole.unknown)
    third = forecast(plan(LLAMA, stage=3), replace(facts(LLAMA), placed=placed), machine)
    assert not any("device_map" in sentence for sentence in third.unknown)  # which transformers refuses there


def test_both_ends_of_a_pipeline_are_counted() -> None:
    """The first stage holds as many micro-batches as there are stages; the last one, and the logits."""
    shape, n = (one := facts("gpt2-xl")).shape, counts(one, None)
    assert shape is not None and n is not None
    setup = Setup(ranks=4, pipeline=4, megatron=True, sequence=1024, accumulation=8, checkpointing=True)
    whole = activations(setup, shape)
    (held, first), (_, last) = ends(setup, shape, n, whole)
    assert held.params / 4 == pytest.approx((n.params - n.head) / 4 + n.head, rel=0.001)
    assert whole.kept < first.kept < 1.1 * whole.kept and first.loss == 0
    assert last.kept == pytest.approx(whole.kept / 4) and last.loss == whole.loss


def test_expert_parallelism_frees_gpu_memory() -> None:
    mixtral = "mistralai/Mixtral-8x7B-v0.1"
    whole, split = (found(model=mixtral, stage=2, deepspeed__expert_parallel={"enabled": on, "autoep_size": 8}) for on in (False, True))
    assert split.gpu.parts["weights"] < whole.gpu.parts["weights"] / 4
    assert not any("expert_parallel" in sentence for sentence in split.unknown)


def test_moe_given_by_numbers_is_as_fast_as_its_active_part() -> None:
    text = "version: 1\njob: {script: a}\nmodel: {params: 46.7e9, sequence_length: 2048}\ndeepspeed: {train_micro_batch_size_per_gpu: 1, bf16: {enabled: true}, zero_optimization: {stage: 3}}\n"
    dense = forecast(load(text), facts_of_params(46.7e9), EIGHT_H100)
    sparse = forecast(load(text.replace("46.7e9,", "46.7e9, active_params: 12.9e9,")), facts_of_params(46.7e9), EIGHT_H100)
    assert dense.gpu.bytes == sparse.gpu.bytes
    assert dense.speed and sparse.speed and sparse.speed.tokens > 1.5 * dense.speed.tokens


def test_hpz_and_quantized_collectives_are_faster_on_a_slow_network() -> None:
    sets = {"machine": named_machine("8xA100-80", 4, "eth-25"), "model": "meta-llama/Llama-2-13b-hf", "stage": 3, "nodes": 4}
    zero = "deepspeed__zero_optimization__"
    plain = speed(**sets)
    second = speed(**sets, **{f"{zero}zero_hpz_partition_size": 8})
    both = speed(
        **sets, **{f"{zero}zero_hpz_partition_size": 8, f"{zero}zero_quantized_weights": True, f"{zero}zero_quantized_gradients": True}
    )
    assert both > 1.5 * second > 1.5 * plain


def test_unknown_architecture_is_overestimated_with_a_wide_range() -> None:
    config = {"model_type": "brandnew", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    config |= {"vocab_size": 32000, "intermediate_size": 11008}
    guess = facts_of_config(config)
    assert guess.params == pytest.approx(6.74e9, rel=0.02) and "brandnew" in guess.notes[0]
    known, guessed = forecast(plan(), facts(), EIGHT_H100), forecast(plan(), guess, EIGHT_H100)
    assert known.gpu.bytes and guessed.gpu.bytes == pytest.approx(known.gpu.bytes, rel=0.05)
    assert guessed.gpu.range[1] > 1.2 * known.gpu.range[1]


T5: dict[str, Any] = {
    "d_kv": 64,
    "num_layers": 24,
    "num_decoder_layers": 24,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
PEFT = {
    "T0_3B": ({**T5, "model_type": "t5", "d_model": 2048, "d_ff": 5120, "num_heads": 32, "vocab_size": 32128}, 17.8),
    "mt0-xxl": ({**T5, "model_type": "mt5", "d_model": 4096, "d_ff": 10240, "num_heads": 64, "vocab_size": 250112}, 52),
    "bloomz-7b1": ({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880}, 35),
}
"""LoRA with stage 3 and everything in RAM on one A100, and the GB of RAM: github.com/huggingface/peft, README of 0.2."""


@pytest.mark.parametrize("name", PEFT)
def test_ram_with_offloaded_weights_equals_pefts_guide(name: str) -> None:
    config, measured = PEFT[name]
    away = {"device": "cpu", "pin_memory": True}
    given = plan(stage=3, micro=8, sequence=256, model__lora={"r": 8}).set("job.integration", "accelerate")
    given = given.set("deepspeed.zero_optimization.offload_optimizer", away).set("deepspeed.zero_optimization.offload_param", away)
    need = forecast(given, facts_of_config(config), named_machine("1xA100-80", ram=64 << 30)).host
    assert need.bytes and need.bytes / 1e9 == pytest.approx(measured, rel=0.15)
    assert need.peak == "load and build" and set(need.moments) >= {"load and build", "initialize", "train"}


def test_cpu_optimizer_on_shared_cores_gets_advice_to_bind_them() -> None:
    given = plan(LLAMA, stage=3, deepspeed__zero_optimization__offload_optimizer={"device": "cpu"})
    (advice,) = [f for f in findings_of(given, facts(LLAMA), EIGHT_H100) if f.code == "FC005"]
    assert advice.severity == "info" and advice.fix and advice.fix.patch
    bound = given.patch(advice.fix.patch)
    assert bound.cluster.cpu_binding == "deepspeed"
    assert not any(f.code == "FC005" for f in findings_of(bound, facts(LLAMA), EIGHT_H100))
    before, after = (forecast(one, facts(LLAMA), EIGHT_H100).speed for one in (given, bound))
    assert before and after and after.tokens > before.tokens


MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"


def test_experts_and_loss_follow_the_release_of_transformers() -> None:
    one, qlora = (
        named_machine("1xA100-80"),
        {"model__lora": {"r": 16}, "model__quantization": "nf4", "model__activation_checkpointing": True},
    )
    need = {
        release: found(machine=replace(one, software=replace(one.software, transformers=release)), model=MIXTRAL, stage=0, **qlora).gpu
        for release in ("4.48.3", "4.57.0", "5.2.0")
    }
    said = {r: found(machine=replace(one, software=replace(one.software, transformers=r)), model=MIXTRAL, **qlora).unknown for r in need}
    assert {r: any("experts stay in 16 bits" in sentence for sentence in told) for r, told in said.items()} == {
        "4.48.3": False, "4.57.0": False, "5.2.0": True
    }  # fmt: skip
    experts = 45.1e9 * (2 - 0.516)
    assert need["5.2.0"].parts["weights"] - need["4.57.0"].parts["weights"] == pytest.approx(experts, rel=0.02)
    old, new = (
        found(machine=replace(one, software=replace(one.software, transformers=r)), micro=8, sequence=4096, job__integration="trainer")
        for r in ("4.48.3", "4.49.0")
    )
    copied = old.gpu.parts["logits_and_loss"] - new.gpu.parts["logits_and_loss"]
    assert copied == pytest.approx(2 * 128256 * 8 * 4096, rel=0.01)
    gpt_oss = [
        found(machine=replace(one, software=replace(one.software, transformers=release)), model="openai/gpt-oss-20b", **qlora).gpu.bytes
        for release in ("4.57.0", "5.2.0")
    ]
    assert gpt_oss[0] == gpt_oss[1], "its experts are one tensor in both"


def test_adapters_cost_time_and_quantized_weights_travel_quantized() -> None:
    lora = {"stage": 3, "micro": 8, "sequence": 4096, "model__activation_checkpointing": True}
    few, all_linear = (speed(**lora, model__lora={"r": 16, "target_modules": modules}) for modules in (["q_proj"], "all-linear"))
    assert 1.02 < few / all_linear < 1.3
    slow = {"machine": named_machine("2xRTX-4090"), "stage": 3, "model__lora": {"r": 16}, "model__activation_checkpointing": True}
    assert speed(**slow, model__quantization="nf4") > 1.3 * speed(**slow)


def test_bucket_on_cpu_holds_what_is_written_and_a_small_model_has_a_small_vocabulary() -> None:
    small = forecast(plan(stage=2).set("cluster.cpu_ranks", 2), facts_of_params(410_000), NO_GPU)
    assert small.host.parts["reduce_buckets"] < 10 << 20 and small.host.parts["logits_and_loss"] < 300 << 20


def test_loop_of_its_own_holds_the_logits_until_the_backward_pass_ends() -> None:
    sets = {"stage": 3, "micro": 4, "sequence": 4096, "model__activation_checkpointing": True}
    own, trainer = (found(**sets, job__integration=kind).allocated for kind in ("deepspeed", "trainer"))
    assert own and trainer
    assert own - trainer == pytest.approx(2 * 4 * 4096 * 128_256, rel=0.01)
