"""Gemma 4: two kinds of attention with heads of different sizes, shared keys and values, experts, and towers for images and audio.

Source: transformers' modeling_gemma4.py of release 5.23. Layers that reuse keys and values of earlier ones have no projections for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape

FULL, GROUPS = "full_attention", (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class _Attention(NamedTuple):
    """The heads of one kind of layer, and how many layers have it."""

    of_head: int
    kv_heads: int
    layers: int
    own: int
    """Layers that have keys and values of their own."""
    same: bool
    """True if the keys are the values too."""


def gemma4_text(c: Config) -> Architecture:
    """Build the decoder alone."""
    hidden, layers = c.number("hidden_size", default=2304), c.number("num_hidden_layers", default=30, most=10_000)
    heads, rows = c.number("num_attention_heads", default=8), c.number("vocab_size", default=262_144)
    bias, census = c.flag(("attention_bias", False)), Census()
    census.add("embed_tokens", "embedding", rows, hidden)
    if c.head != "Model" and not c.flag(("tie_word_embeddings", True)):
        census.add("lm_head", "head", rows, hidden)
    shared = min(c.number("num_kv_shared_layers", default=0, least=0), layers)
    kinds = _kinds(c, layers, shared)
    for kind in kinds:
        census.linear("q_proj", hidden, heads * kind.of_head, bias, kind.layers)
        census.linear("k_proj", hidden, kind.kv_heads * kind.of_head, bias, kind.own)
        census.linear("v_proj", hidden, kind.kv_heads * kind.of_head, bias, kind.own * (not kind.same))
        census.linear("o_proj", heads * kind.of_head, hidden, bias, kind.layers)
        census.norm("q_norm", kind.of_head, times=kind.layers)
        census.norm("k_norm", kind.of_head, times=kind.own)
    width = c.number("intermediate_size", default=9216)
    wide = shared * c.flag(("use_double_wide_mlp", False))
    for each, times in ((width, layers - wide), (2 * width, wide)):
        for module in ("gate_proj", "up_proj"):
            census.linear(module, hidden, each, times=times)
        census.linear("down_proj", each, hidden, times=times)
    census.norm("norm", hidden, times=4 * layers + 1)
    _layer_inputs(census, c, hidden, layers)
    used, idle = _experts(census, c, hidden, layers)
    shape = TensorShape(
        family="gemma3_text", hidden=hidden, layers=layers, heads=heads,
        kv_heads=c.number("num_key_value_heads", default=4), head_dim=c.number("head_dim", default=256),
        ffn=width + used * c.number("moe_intermediate_size", default=1), vocabulary=rows if c.head != "Model" else 0,
        positions=c.number("max_position_embeddings", default=0, least=0), experts=used,
    )  # fmt: skip
    return Architecture("gemma4_text", tuple(t for t in census.tensors if t.times), shape, idle, GROUPS)


def _kinds(c: Config, layers: int, shared: int) -> tuple[_Attention, _Attention]:
    """Return the layers that attend to a window, and those that attend to everything, every sixth unless the file lists them."""
    listed = c.texts("layer_types")[:layers]
    names = (*listed[:-1], FULL) if listed else tuple(FULL if not (n + 1) % 6 or n == layers - 1 else "" for n in range(layers))
    full, own = names.count(FULL), names[: layers - shared].count(FULL)
    of_head, kv_heads, same = (
        c.number("head_dim", default=256),
        c.number("num_key_value_heads", default=4),
        c.flag(("attention_k_eq_v", False)),
    )
    given = c.part("per_layer_config").first()
    wide = given.number("head_dim", default=c.number("global_head_dim", default=512))
    few = given.number("num_key_value_heads", default=c.number("num_global_key_value_heads", default=kv_heads) if same else kv_heads)
    return (
        _Attention(of_head, kv_heads, layers - full, layers - shared - own, False),
        _Attention(wide, few, full, own, same),
    )


def _layer_inputs(census: Census, c: Config, hidden: int, layers: int) -> None:
    """Add the embeddings for each layer."""
    narrow = c.number("hidden_size_per_layer_input", default=256, least=0)
    if not narrow:
        return
    census.linear("per_layer_input_gate", hidden, narrow, times=layers)
    census.linear("per_layer_projection", narrow, hidden, times=layers)
    census.norm("post_per_layer_input_norm", hidden, times=layers)
    census.add("embed_tokens_per_layer", "other", c.number("vocab_size_per_layer_input", default=262_144), layers * narrow)
    census.linear("per_layer_model_projection", hidden, layers * narrow)
    census.norm("per_layer_projection_norm", narrow)


def _experts(census: Census, c: Config, hidden: int, layers: int) -> tuple[int, int]:
    """Add experts beside the MLP of each layer. Return how many a token uses, and the parameters of those that it does not use."""
    if not c.flag(("enable_moe_block", False)):
        return 0, 0
    experts, used, width = c.number("num_experts"), c.number("top_k_experts"), c.number("moe_intermediate_size")
    census.add("experts.gate_up_proj", "experts", experts, 2 * width, hidden, times=layers)
    census.add("experts.down_proj", "experts", experts, hidden, width, times=layers)
    census.linear("proj", hidden, experts, times=layers)
    census.add("scale", "other", hidden + experts, times=layers)
    census.norm("norm", hidden, times=3 * layers)
    return used, max(experts - used, 0) * 3 * hidden * width * layers


def gemma4(c: Config) -> Architecture:
    """Build the whole model: the decoder, and towers for images and audio if the file has them."""
    text, census = gemma4_text(c.text_config()), Census()
    if c.has("vision_config"):
        _vision(census, c.part("vision_config"), text.shape.hidden)
    if c.has("audio_config"):
        _audio(census, c.part("audio_config"), text.shape.hidden)
    return Architecture("gemma4", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def _vision(census: Census, c: Config, hidden: int) -> None:
    h, layers, of_head = (
        c.number("hidden_size", default=768),
        c.number("num_hidden_layers", default=16, most=10_000),
        c.number("head_dim", default=64),
    )
    heads, width = c.number("num_attention_heads", default=12), c.number("intermediate_size", default=3072)
    keys = c.number("num_key_value_heads", default=12)
    census.linear("input_proj", 3 * c.number("patch_size", default=16) ** 2, h)
    census.add("position_embedding_table", "other", 2, c.number("position_embedding_size", default=10_240), h)
    for module, into, out in (
        ("q_proj", h, heads * of_head), ("k_proj", h, keys * of_head), ("v_proj", h, keys * of_head), ("o_proj", heads * of_head, h),
        ("gate_proj", h, width), ("up_proj", h, width), ("down_proj", width, h),
    ):  # fmt: skip
        census.linear(module, into, out, times=layers)
    census.norm("head_norm", of_head, times=2 * layers)
    census.norm("norm", h, times=4 * layers)
    census.linear("embedding_projection", h, hidden)


def _audio(census: Census, c: Config, hidden: int) -> None:
    h, layers = c.number("hidden_size", default=1024), c.number("num_hidden_layers", default=12, most=10_000)
    first, second = c.numbers("subsampling_conv_channels") or (128, 32)
    out = c.number("output_proj_dims", default=1536)
    census.add("subsample_conv", "other", first, 9 + 1)
    census.add("subsample_conv", "other", second, 9 * first + 1)
    census.linear("input_proj_linear", first // 4 * second, h)
    for module, into, to, times in (
        ("ffw_layer_1", h, 4 * h, 2), ("ffw_layer_2", 4 * h, h, 2), ("q_proj", h, h, 1), ("k_proj", h, h, 1), ("v_proj", h, h, 1),
        ("post", h, h, 1), ("relative_k_proj", h, h, 1), ("linear_start", h, 2 * h, 1), ("linear_end", h, h, 1),
    ):  # fmt: skip
        census.linear(module, into, to, times=times * layers)
    census.add("per_dim_scale", "other", h // c.number("num_attention_heads", default=8), times=layers)
    census.add("depthwise_conv1d", "other", h, c.number("conv_kernel_size", default=5), times=layers)
    census.norm("norm", h, times=9 * layers)
    census.linear("output_proj", h, out, True)
    census.linear("embedding_projection", out, hidden)


def gemma4_unified(c: Config) -> Architecture:
    """Build Gemma 4 12B: patches and sound are projected into the decoder, without towers."""
    text, census = gemma4_text(c.text_config().plain()), Census()
    hidden = text.shape.hidden
    if c.has("vision_config"):
        vision = c.part("vision_config")
        pixels = 3 * (vision.number("patch_size", default=16) * vision.number("pooling_kernel_size", default=3)) ** 2
        h, out = vision.number("mm_embed_dim", default=3840), vision.number("output_proj_dims", default=3840)
        census.add("pos_embedding", "embedding", vision.number("mm_posemb_size", default=1120), 2, h)
        census.norm("patch_ln1", pixels, True)
        census.linear("patch_dense", pixels, h, True)
        census.norm("patch_ln2", h, True, 2)
        census.linear("embedding_projection", out, hidden)
    if c.has("audio_config"):
        census.linear("embedding_projection", c.part("audio_config").number("audio_embed_dim", default=640), hidden)
    return Architecture("gemma4_unified", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


GEMMA4: Mapping[str, Callable[[Config], Architecture]] = {
    "gemma4": gemma4,
    "gemma4_text": gemma4_text,
    "gemma4_unified": gemma4_unified,
    "gemma4_unified_text": lambda c: gemma4_text(c.plain()),
}
