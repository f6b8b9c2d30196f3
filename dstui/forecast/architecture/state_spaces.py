"""Decoders with Mamba-2 or short convolutions beside attention: Granite 4, Falcon-H1, Nemotron-H, LFM2.

Sources: transformers' modeling_*.py of release 5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.mixtures import (
    GATED,
    QKV,
    add_attention,
    add_ends,
    add_fused_experts,
    add_gated,
    add_head_norms,
    mixture_shape,
)  # fmt: skip
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape


def lfm2(c: Config) -> Architecture:
    """Build LFM2 and its mixture: short convolutions with gates in most layers, attention with norms of the heads in the others."""
    kind, c, moe = c.text("model_type"), c.tied_by_default(), c.text("model_type") == "lfm2_moe"
    shape = _shape(c, c.number("num_experts_per_tok", default=4) * c.number("moe_intermediate_size") if moe else _lfm2_width(c))
    census, hidden, layers, bias = Census(), shape.hidden, shape.layers, c.flag(("conv_bias", False))
    listed = c.texts("layer_types")
    full = listed.count("full_attention") if listed else len(c.numbers("full_attn_idxs")) or layers
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, replace(shape, layers=full), False)
    add_head_norms(census, replace(shape, layers=full))
    if full < layers:
        census.add("conv", "other", hidden, c.number("conv_L_cache", default=3) + bias, times=layers - full)
        census.linear("in_proj", hidden, 3 * hidden, bias, layers - full)
        census.linear("out_proj", hidden, hidden, bias, layers - full)
    if not moe:
        add_gated(census, hidden, shape.ffn, layers)
        return Architecture(kind, tuple(census.tensors), shape, 0, (QKV, GATED))
    dense, experts, width = (
        min(c.number("num_dense_layers", default=2, least=0), layers),
        c.number("num_experts"),
        c.number("moe_intermediate_size"),
    )
    used = min(c.number("num_experts_per_tok", default=4), experts)
    add_gated(census, hidden, c.number("intermediate_size"), dense)
    if dense < layers:
        add_fused_experts(census, experts, hidden, width, layers - dense)
        census.add("gate", "other", experts, hidden, times=layers - dense)
    idle = (experts - used) * 3 * hidden * width * (layers - dense)
    return Architecture(kind, tuple(census.tensors), replace(shape, experts=used, family="qwen3_moe"), idle, (QKV, GATED))


def _lfm2_width(c: Config) -> int:
    width = c.number("intermediate_size", "block_ff_dim")
    if not c.flag(("block_auto_adjust_ff_dim", True)):
        return width
    factor, unit = c.value("block_ffn_dim_multiplier"), c.number("block_multiple_of", default=256)
    scaled = int((factor if isinstance(factor, (int, float)) and 0 < factor < 100 else 1.0) * int(2 * width / 3))
    return -(-scaled // unit) * unit


def granite_hybrid(c: Config) -> Architecture:
    """Build Granite 4: Mamba-2 in most layers, attention in the others; in each a shared MLP, and in the larger ones experts."""
    experts = c.number("num_local_experts", default=8, least=0)
    shared, width = c.number("shared_intermediate_size", default=1024), c.number("intermediate_size")
    used = min(c.number("num_experts_per_tok", default=2, least=0), experts)
    shape, census, listed = _shape(c, shared + used * width), Census(), c.texts("layer_types")
    hidden, layers = shape.hidden, shape.layers
    full = _count(listed, "attention")
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, replace(shape, layers=full), c.flag(("attention_bias", False)))
    inner = c.number("mamba_expand", default=2) * hidden
    _mamba2(census, c, MAMBA, hidden, inner, layers - full)
    census.linear("input_linear", hidden, 2 * shared, times=layers)
    census.linear("output_linear", shared, hidden, times=layers)
    if experts:
        add_fused_experts(census, experts, hidden, width, layers)
        census.add("router", "other", experts, hidden, times=layers)
    idle = (experts - used) * 3 * hidden * width * layers
    found = replace(shape, experts=used, family="qwen3_moe" if experts else shape.family)
    return Architecture("granitemoehybrid", tuple(census.tensors), found, idle, (QKV,))


def falcon_h1(c: Config) -> Architecture:
    """Build Falcon-H1: attention and Mamba-2 beside each other in each layer."""
    shape, census = _shape(c, c.number("intermediate_size")), Census()
    hidden, layers = shape.hidden, shape.layers
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, shape, c.flag(("attention_bias", False)))
    add_gated(census, hidden, shape.ffn, layers, c.flag(("mlp_bias", False)))
    inner = c.number("mamba_d_ssm", default=c.number("mamba_expand", default=2) * hidden)
    _mamba2(census, c, MAMBA, hidden, inner, layers, norm=c.flag(("mamba_rms_norm", False)))
    return Architecture("falcon_h1", tuple(census.tensors), shape, 0, (QKV, GATED))


LETTERS: Mapping[str, str] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_h(c: Config) -> Architecture:
    """Build Nemotron-H and Nemotron 3: each layer is Mamba-2, attention, an MLP or a mixture of experts, none of them gated."""
    kinds = c.texts("layers_block_type") or tuple(LETTERS.get(letter, "") for letter in c.text("hybrid_override_pattern"))
    mamba, full, dense, sparse = (_count(kinds, kind) for kind in ("mamba", "attention", "mlp", "moe"))
    width, shared = c.number("moe_intermediate_size", default=7688), c.number("moe_shared_expert_intermediate_size", default=7688)
    experts, used = c.number("n_routed_experts", default=8), c.number("num_experts_per_tok", default=2)
    layers, wide = len(kinds), c.number("intermediate_size", default=21504)
    per_token = (dense * wide + sparse * (min(used, experts) * width + shared)) // max(dense + sparse, 1)
    shape, census = replace(_shape(c.with_layers(max(layers, 1)), per_token), family="starcoder2"), Census()
    hidden, bias, inner = shape.hidden, c.flag(("mlp_bias", False)), c.number("moe_latent_size", default=shape.hidden)
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=layers)
    _mamba2(census, c, NEMOTRON, hidden, c.number("mamba_num_heads", default=128) * c.number("mamba_head_dim", default=64), mamba)
    add_attention(census, replace(shape, layers=full), False)
    for times, size in ((dense, wide), (sparse, shared)):
        if times:
            census.linear("up_proj", hidden, size, bias, times)
            census.linear("down_proj", size, hidden, bias, times)
    if sparse:
        census.add("experts.up_proj", "experts", experts, width, inner, times=sparse)
        census.add("experts.down_proj", "experts", experts, inner, width, times=sparse)
        census.add("gate", "other", experts, hidden, times=sparse)
    if sparse and inner != hidden:
        census.linear("fc1_latent_proj", hidden, inner, bias, sparse)
        census.linear("fc2_latent_proj", inner, hidden, bias, sparse)
    idle = max(experts - used, 0) * 2 * inner * width * sparse
    return Architecture("nemotron_h", tuple(census.tensors), shape, idle, (QKV,))


MAMBA = ("mamba_n_heads", "mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_proj_bias", "mamba_conv_bias")
NEMOTRON = ("mamba_num_heads", "ssm_state_size", "n_groups", "conv_kernel", "use_bias", "use_conv_bias")
"""The keys of the heads, the state, its groups, the convolution's width, and the biases."""


def _mamba2(census: Census, c: Config, keys: tuple[str, ...], hidden: int, inner: int, times: int, *, norm: bool = True) -> None:  # noqa: PLR0913, PLR0917
    """Add Mamba-2 layers: one projection for gate, input, state and steps, a convolution over input and state."""
    heads, state, groups, kernel, bias, of_conv = keys
    if not times:
        return
    many, proj = c.number(heads, default=128), c.flag((bias, False))
    groups_of_state = c.number(groups, default=8 if keys is NEMOTRON else 1) * c.number(state, default=128 if keys is NEMOTRON else 256)
    convolved = inner + 2 * groups_of_state
    for name in ("dt_bias", "A_log", "D"):
        census.add(name, "other", many, times=times)
    census.add("conv1d", "other", convolved, c.number(kernel, default=4) + c.flag((of_conv, True)), times=times)
    census.linear("in_proj", hidden, inner + convolved + many, proj, times)
    if norm:
        census.norm("norm", inner, times=times)
    census.linear("out_proj", inner, hidden, proj, times)


def _count(kinds: tuple[str, ...], kind: str) -> int:
    """Return how many layers are of a kind. transformers 5 saves other names than the models' own files."""
    return sum(name in (kind, RENAMED.get(kind)) for name in kinds)


RENAMED: Mapping[str, str] = {"mamba": "linear_attention", "attention": "full_attention"}


def _shape(c: Config, ffn: int) -> TensorShape:
    """Return the shape of a decoder without experts, whose MLP has this width."""
    return replace(mixture_shape(c, 0, 0, 1), ffn=ffn, experts=0, family="llama")


STATE_SPACES: Mapping[str, Callable[[Config], Architecture]] = {
    "lfm2": lfm2,
    "lfm2_moe": lfm2,
    "granitemoehybrid": granite_hybrid,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
}
