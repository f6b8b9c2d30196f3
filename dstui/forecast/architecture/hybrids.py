"""Models with layers other than attention: state spaces (Mamba) and gated delta rules (Qwen3-Next, Qwen3.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dstui.forecast.architecture.composed import qwen3_tower
from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.decoders import decoder_tensors
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape

FULL_EVERY = 4
"""One of this many layers of Qwen3-Next has full attention, unless the file lists them."""


def mamba(c: Config) -> Architecture:
    """Build Mamba: each layer is a convolution and a state space, without attention and MLP."""
    census, hidden, layers, rows = Census(), c.number("hidden_size"), c.number("num_hidden_layers", most=10_000), c.number("vocab_size")
    inner, states = c.number("expand", default=2) * hidden, c.number("state_size", default=16)
    rank = c.number("time_step_rank", default=-(-hidden // 16))
    census.add("embeddings", "embedding", rows, hidden)
    census.norm("norm", hidden, times=layers)
    census.add("A_log", "other", inner, states, times=layers)
    census.add("D", "other", inner, times=layers)
    census.add("conv1d", "other", inner, c.number("conv_kernel", default=4) + c.flag(("use_conv_bias", True)), times=layers)
    bias = c.flag(("use_bias", False))
    census.linear("in_proj", hidden, 2 * inner, bias, layers)
    census.linear("x_proj", inner, rank + 2 * states, times=layers)
    census.linear("dt_proj", rank, inner, True, layers)
    census.linear("out_proj", inner, hidden, bias, layers)
    census.norm("norm_f", hidden)
    if c.head != "Model" and not c.flag(("tie_word_embeddings", True)):
        census.add("lm_head", "head", rows, hidden)
    shape = TensorShape(
        family="llama",
        hidden=hidden,
        layers=layers,
        heads=1,
        kv_heads=1,
        head_dim=inner,
        ffn=inner * 2,
        vocabulary=rows if c.head != "Model" else 0,
        positions=0,
    )
    return Architecture("mamba", tuple(census.tensors), shape)


def qwen3_next(c: Config) -> Architecture:
    """Build the decoder of Qwen3-Next and Qwen3.5: gated delta rules in three layers of four, gated attention in the others."""
    kind = c.text("model_type") or "qwen3_next"
    dense = kind == "qwen3_5_text"
    kinds = c.texts("layer_types")
    layers = c.number("num_hidden_layers", most=10_000)
    full = kinds.count("full_attention") if kinds else layers // c.number("full_attention_interval", default=FULL_EVERY)
    census, shape = decoder_tensors(c, "qwen3_5" if dense else "qwen3_next")
    hidden, linear = shape.hidden, layers - full
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    bias = c.flag(("attention_bias", False))
    census.linear("q_proj", hidden, 2 * queries, bias, full)  # the second half is the gate
    census.linear("k_proj", hidden, keys, bias, full)
    census.linear("v_proj", hidden, keys, bias, full)
    census.linear("o_proj", queries, hidden, bias, full)
    census.norm("q_norm", shape.head_dim, times=full)
    census.norm("k_norm", shape.head_dim, times=full)
    _delta(census, c, hidden, linear)
    idle = 0
    if not dense:
        experts, used = c.number("num_experts"), min(shape.experts, c.number("num_experts"))
        sparse = sum(t.times for t in census.tensors if t.module == "router")
        idle = (experts - used) * 3 * hidden * c.number("moe_intermediate_size") * sparse
    family = "qwen3" if dense else "qwen3_moe"
    return Architecture(kind, tuple(census.tensors), replace(shape, family=family), idle, (("q_proj", "k_proj", "v_proj"),))


def qwen3_5(c: Config) -> Architecture:
    """Build Qwen3.5 with its vision transformer, whose patches are merged by four."""
    kind, part = c.text("model_type"), c.text_config()
    text, census = qwen3_next(part.named(f"{kind}_text")), Census()
    qwen3_tower(census, c.section("vision_config"), text.shape.hidden, 0)
    return Architecture(kind, (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def _delta(census: Census, c: Config, hidden: int, layers: int) -> None:
    """Add the layers of linear attention. Qwen3.5 stores the same projections as four tensors instead of two."""
    heads, key_heads = c.number("linear_num_value_heads", default=32), c.number("linear_num_key_heads", default=16)
    of_key, of_value = c.number("linear_key_head_dim", default=128), c.number("linear_value_head_dim", default=128)
    keys, values = key_heads * of_key, heads * of_value
    census.add("dt_bias", "other", heads, times=layers)
    census.add("A_log", "other", heads, times=layers)
    census.add("conv1d", "other", 2 * keys + values, c.number("linear_conv_kernel_dim", default=4), times=layers)
    census.linear("in_proj_qkvz", hidden, 2 * keys + 2 * values, times=layers)
    census.linear("in_proj_ba", hidden, 2 * heads, times=layers)
    census.norm("norm", of_value, times=layers)
    census.linear("out_proj", values, hidden, times=layers)


HYBRIDS: Mapping[str, Callable[[Config], Architecture]] = {
    "mamba": mamba,
    "qwen3_next": qwen3_next,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5,
    "qwen3_5_text": qwen3_next,
    "qwen3_5_moe_text": qwen3_next,
}
