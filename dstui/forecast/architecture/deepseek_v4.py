"""DeepSeek-V4: compressed attention with one key head, several residual streams. Source: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.mixtures import GATED, add_ends, add_fused_experts, add_gated, mixture_shape
from dstui.forecast.architecture.tensors import Architecture, Census

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
RATIO_KINDS: Mapping[int, str] = {4: SPARSE, 128: HEAVY}
"""The compression of a layer, as DeepSeek's own files give it -> the name in transformers."""


def deepseek_v4(c: Config) -> Architecture:
    """Build DeepSeek-V4: queries and output through low-rank projections, one key head, compressors, experts in each layer."""
    width, shared = c.number("moe_intermediate_size"), c.number("n_shared_experts", default=1, least=0)
    census, streams = Census(), c.number("hc_mult", default=4, most=1000)
    shape = replace(mixture_shape(c, width, shared), head_dim=c.number("head_dim", default=512), kv_heads=1, streams=streams)
    hidden, layers, heads, head = shape.hidden, shape.layers, shape.heads, shape.head_dim
    rank, groups = c.number("q_lora_rank"), c.number("o_groups", default=8)
    narrow = groups * c.number("o_lora_rank", default=1024)
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    census.add("sinks", "other", heads, times=layers)
    census.linear("q_a_proj", hidden, rank, times=layers)
    census.norm("q_a_norm", rank, times=layers)
    census.linear("q_b_proj", rank, heads * head, times=layers)
    census.linear("kv_proj", hidden, head, times=layers)
    census.norm("kv_norm", head, times=layers)
    census.linear("o_a_proj", heads * head // groups, narrow, times=layers)
    census.linear("o_b_proj", narrow, hidden, times=layers)
    _compressors(census, c, hidden, head, _kinds(c, layers))
    _streams(census, streams, hidden, layers)
    experts = c.number("n_routed_experts")
    add_fused_experts(census, experts, hidden, width, layers)
    census.add("gate", "other", experts, hidden, times=layers)
    add_gated(census, hidden, width * shared, layers * bool(shared))
    idle = max(experts - shape.experts, 0) * 3 * hidden * width * layers
    return Architecture("deepseek_v4", tuple(census.tensors), shape, idle, (("q_a_proj", "kv_proj"), GATED))


def _kinds(c: Config, layers: int) -> tuple[str, ...]:
    """Return the kind of attention of each layer. The lists of the files may continue with the layers that predict further tokens."""
    listed = c.texts("layer_types") or tuple(RATIO_KINDS.get(ratio, "") for ratio in c.numbers("compress_ratios"))
    return (listed or (HEAVY, HEAVY, *((HEAVY, SPARSE) * layers)))[:layers]


def _compressors(census: Census, c: Config, hidden: int, head: int, kinds: tuple[str, ...]) -> None:
    rates, rank = c.part("compress_rates"), c.number("q_lora_rank")
    heads, of_head = c.number("index_n_heads", default=64), c.number("index_head_dim", default=128)
    few, many = rates.number(SPARSE, default=4), rates.number(HEAVY, default=128)
    sparse, heavy = kinds.count(SPARSE), kinds.count(HEAVY)
    for size, norm, rate, times in ((head, head, many, heavy), (2 * head, head, few, sparse), (2 * of_head, of_head, few, sparse)):
        if times:
            census.add("position_bias", "other", rate, size, times=times)
            census.linear("kv_proj", hidden, size, times=times)
            census.linear("gate_proj", hidden, size, times=times)
            census.norm("kv_norm", norm, times=times)
    if sparse:  # the indexer, which chooses the compressed positions
        census.linear("q_b_proj", rank, heads * of_head, times=sparse)
        census.linear("weights_proj", hidden, heads, times=sparse)


def _streams(census: Census, streams: int, hidden: int, layers: int) -> None:
    """Add what mixes the residual streams before and after each attention and MLP, and at the end."""
    mixed = streams * (streams + 2)
    census.add("hc.fn", "other", mixed, streams * hidden, times=2 * layers)
    census.add("hc.base", "other", mixed + 3, times=2 * layers)
    census.add("hc_head.fn", "other", streams, streams * hidden)
    census.add("hc_head.base", "other", streams + 1)


DEEPSEEK_V4: Mapping[str, Callable[[Config], Architecture]] = {"deepseek_v4": deepseek_v4}
