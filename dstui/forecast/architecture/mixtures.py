"""Mixtures of experts that differ from a LLaMA with experts: DeepSeek, GLM-4.5 to 5, ERNIE 4.5, Hunyuan, DBRX, gpt-oss, Llama 4, …."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape

GATED = ("gate_proj", "up_proj")
QKV = ("q_proj", "k_proj", "v_proj")
LATENT = ("q_a_proj", "kv_a_proj_with_mqa")


DENSE = {"deepseek_v2": 0, "mistral4": 0, "glm4_moe_lite": 1}
"""The default number of first layers that are dense, where it is not three."""


def deepseek(c: Config) -> Architecture:
    """Build DeepSeek-V2 and V3, and those like it: latent attention, dense first layers, shared experts."""
    kind, census, shape = (
        c.text("model_type"),
        Census(),
        mixture_shape(c, c.number("moe_intermediate_size"), c.number("n_shared_experts", default=0, least=0)),
    )
    hidden, layers = shape.hidden, shape.layers
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    _latent_attention(census, c, shape)
    idle = _experts_after_dense(census, c, shape, dense=DENSE.get(kind, 3), shared=2 if kind == "deepseek_v2" else 1)
    return Architecture(kind, tuple(census.tensors), shape, idle, (("q_proj", *LATENT), GATED))


def glm_moe_dsa(c: Config) -> Architecture:
    """Build GLM-5 and DeepSeek-V3.2: an indexer chooses the positions to attend to, in each layer that does not share one."""
    found, layers, head = deepseek(c), c.number("num_hidden_layers", most=10_000), c.number("index_head_dim", default=128)
    heads, hidden, census = c.number("index_n_heads", default=32 if found.kind == "glm_moe_dsa" else 64), found.shape.hidden, Census()
    listed = c.texts("indexer_types")
    times = min(sum(kind != "shared" for kind in listed), layers) if listed else layers
    if times:
        census.linear("wq_b", c.number("q_lora_rank"), heads * head, times=times)
        census.linear("wk", hidden, head, times=times)
        census.norm("k_norm", head, True, times)
        census.linear("weights_proj", hidden, heads, times=times)
    return Architecture(found.kind, (*found.tensors, *census.tensors), found.shape, found.idle, found.groups)


def _experts_after_dense(census: Census, c: Config, shape: TensorShape, *, dense: int, shared: int) -> int:
    """Add dense MLPs to the first layers, experts to the others. Return the idle parameters. `dense`, `shared`: defaults of the family."""
    hidden, layers = shape.hidden, shape.layers
    listed = c.texts("mlp_layer_types")
    dense = min(listed.count("dense") if listed else c.number("first_k_dense_replace", default=dense, least=0), layers)
    add_gated(census, hidden, c.number("intermediate_size"), dense)
    sparse, experts, width = layers - dense, c.number("n_routed_experts"), c.number("moe_intermediate_size")
    if not sparse:
        return 0
    add_fused_experts(census, experts, hidden, width, sparse)
    census.add("gate", "other", experts, hidden, times=sparse)
    add_gated(census, hidden, width * c.number("n_shared_experts", default=shared), sparse)
    return max(experts - shape.experts, 0) * 3 * hidden * width * sparse


def add_fused_experts(census: Census, experts: int, hidden: int, width: int, times: int) -> None:
    census.add("experts.gate_up_proj", "experts", experts, 2 * width, hidden, times=times)
    census.add("experts.down_proj", "experts", experts, hidden, width, times=times)


def glm4_moe(c: Config) -> Architecture:
    """Build GLM-4.5 and dots.llm1: dense first layers, shared experts, perhaps biases of the queries and keys."""
    dots = c.text("model_type") == "dots1"
    census, shape = Census(), mixture_shape(c, c.number("moe_intermediate_size"), c.number("n_shared_experts", default=1, least=0))
    add_ends(census, c, shape)
    census.norm("norm", shape.hidden, times=2 * shape.layers)
    add_attention(census, shape, c.flag(("attention_bias", False)), out_bias=None if dots else False)
    if dots or c.flag(("use_qk_norm", False)):
        add_head_norms(census, shape)
    idle = _experts_after_dense(census, c, shape, dense=0 if dots else 1, shared=1)
    return Architecture("dots1" if dots else "glm4_moe", tuple(census.tensors), shape, idle, (QKV, GATED))


def ernie_moe(c: Config) -> Architecture:
    """Build ERNIE 4.5's mixture: dense layers before and after those with experts, and shared experts as one MLP."""
    width, shared, used = (
        c.number("moe_intermediate_size"),
        c.number("moe_num_shared_experts", default=2, least=0),
        c.number("moe_k", default=6),
    )
    census, shape, bias = Census(), mixture_shape(c, width, shared, used), c.flag(("use_bias", False))
    hidden, layers, experts = shape.hidden, shape.layers, c.number("moe_num_experts", default=64)
    add_ends(census, c.tied_by_default(), shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, shape, bias)
    first, last = c.number("moe_layer_start_index", default=1, least=0), c.number("moe_layer_end_index", default=-1, least=-1)
    step, last = c.number("moe_layer_interval", default=1), layers - 1 if last == -1 else last
    sparse = sum((layer + 1) % step == 0 and first <= layer <= last for layer in range(layers))
    add_gated(census, hidden, c.number("intermediate_size"), layers - sparse, bias)
    if not sparse:
        return Architecture("ernie4_5_moe", tuple(census.tensors), shape, 0, (QKV, GATED))
    add_fused_experts(census, experts, hidden, width, sparse)
    census.add("gate", "other", experts, hidden, times=sparse)
    census.add("e_score_correction_bias", "other", experts, times=sparse)
    add_gated(census, hidden, shared * width, sparse * bool(shared), bias)
    return Architecture("ernie4_5_moe", tuple(census.tensors), shape, max(experts - used, 0) * 3 * hidden * width * sparse, (QKV, GATED))


def hunyuan_moe(c: Config) -> Architecture:
    """Build Hunyuan's mixture: norms of the heads, a shared expert in each layer. Its file lists the same sizes for each layer."""
    width, used = c.number("intermediate_size"), c.size("moe_topk", 1)
    census, shape = Census(), mixture_shape(c, width, 1, used)
    add_ends(census, c, shape)
    census.norm("norm", shape.hidden, times=2 * shape.layers)
    add_attention(census, shape, c.flag(("attention_bias", False)))
    add_head_norms(census, shape)
    experts = c.size("num_experts", 1)
    add_fused_experts(census, experts, shape.hidden, width, shape.layers)
    census.add("gate", "other", experts, shape.hidden, times=shape.layers)
    add_gated(census, shape.hidden, width, shape.layers)
    idle = max(experts - used, 0) * 3 * shape.hidden * width * shape.layers
    return Architecture("hunyuan_v1_moe", tuple(census.tensors), shape, idle, (QKV, GATED))


def afmoe(c: Config) -> Architecture:
    """Build Arcee's Trinity: a gate of the attention's result, norms of the heads, dense first layers, shared experts as one MLP."""
    width, shared = c.number("moe_intermediate_size", default=1408), c.number("num_shared_experts", default=2, least=0)
    census, shape = Census(), mixture_shape(c, width, shared)
    hidden, bias, experts = shape.hidden, c.flag(("attention_bias", False)), c.number("num_experts", default=64)
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=4 * shape.layers)
    add_attention(census, shape, bias)
    add_head_norms(census, shape)
    census.linear("gate_proj", hidden, shape.heads * shape.head_dim, times=shape.layers)
    dense = min(c.number("num_dense_layers", default=1, least=0), shape.layers)
    sparse = shape.layers - dense
    add_gated(census, hidden, c.number("intermediate_size"), dense)
    add_gated(census, hidden, shared * width, sparse * bool(shared))
    if sparse:
        add_fused_experts(census, experts, hidden, width, sparse)
        census.add("gate", "other", experts, hidden + 1, times=sparse)  # with the bias of each expert
    idle = max(experts - shape.experts, 0) * 3 * hidden * width * sparse
    return Architecture("afmoe", tuple(census.tensors), shape, idle, (QKV, GATED))


def minicpm3(c: Config) -> Architecture:
    """Build MiniCPM3: latent attention and a dense MLP."""
    width, c = c.number("intermediate_size"), c.tied_by_default()
    census, shape = Census(), replace(mixture_shape(c, width, 0, 1), experts=0, family="llama")
    add_ends(census, c, shape)
    census.norm("norm", shape.hidden, times=2 * shape.layers)
    _latent_attention(census, c, shape)
    add_gated(census, shape.hidden, width, shape.layers, c.flag(("mlp_bias", False)))
    return Architecture("minicpm3", tuple(census.tensors), shape, 0, (("q_proj", *LATENT), GATED))


def dbrx(c: Config) -> Architecture:
    """Build DBRX: one projection for queries, keys and values; the experts of a layer are three tensors."""
    hidden, heads, layers = c.number("d_model"), c.number("n_heads"), c.number("n_layers", most=10_000)
    attention, mlp = c.section("attn_config"), c.section("ffn_config")
    width, experts, used = mlp.number("ffn_hidden_size"), mlp.number("moe_num_experts"), mlp.number("moe_top_k")
    shape = TensorShape(
        family="qwen3_moe",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=attention.number("kv_n_heads", default=1),
        head_dim=hidden // heads or 1,
        ffn=used * width,
        vocabulary=c.number("vocab_size"),
        positions=c.number("max_seq_len", default=0, least=0),
        experts=used,
    )
    census = Census()
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    census.linear("Wqkv", hidden, (heads + 2 * shape.kv_heads) * shape.head_dim, times=layers)
    census.linear("out_proj", hidden, hidden, times=layers)
    for module in ("w1", "v1", "w2"):
        census.add(module, "experts", experts * width, hidden, times=layers)
    census.linear("layer", hidden, experts, times=layers)
    idle = max(experts - used, 0) * 3 * hidden * width * layers
    return Architecture("dbrx", tuple(census.tensors), shape, idle)


def _latent_attention(census: Census, c: Config, shape: TensorShape) -> None:
    """Add queries and keys through low-rank projections. A part of each head has no position."""
    hidden, layers, heads, bias = shape.hidden, shape.layers, shape.heads, c.flag(("attention_bias", False))
    plain, rotary, value = c.number("qk_nope_head_dim"), c.number("qk_rope_head_dim"), c.number("v_head_dim", default=hidden // heads or 1)
    rank, latent = c.number("q_lora_rank", default=0, least=0), c.number("kv_lora_rank")
    if rank:
        census.linear("q_a_proj", hidden, rank, bias, layers)
        census.norm("q_a_layernorm", rank, times=layers)
        census.linear("q_b_proj", rank, heads * (plain + rotary), times=layers)
    else:
        census.linear("q_proj", hidden, heads * (plain + rotary), times=layers)
    census.linear("kv_a_proj_with_mqa", hidden, latent + rotary, bias, layers)
    census.norm("kv_a_layernorm", latent, times=layers)
    census.linear("kv_b_proj", latent, heads * (plain + value), times=layers)
    census.linear("o_proj", heads * value, hidden, bias, layers)


def gpt_oss(c: Config) -> Architecture:
    """Build gpt-oss: experts with biases, and a learned sink for each head."""
    census, shape = Census(), mixture_shape(c, c.number("intermediate_size"), 0)
    hidden, layers, bias = shape.hidden, shape.layers, c.flag(("attention_bias", True))
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, shape, bias)
    census.add("sinks", "other", shape.heads, times=layers)
    experts, width = c.number("num_local_experts", "num_experts"), c.number("intermediate_size")
    census.add("experts.gate_up_proj", "experts", experts, hidden, 2 * width, times=layers)
    census.add("experts.gate_up_proj_bias", "other", experts, 2 * width, times=layers)
    census.add("experts.down_proj", "experts", experts, width, hidden, times=layers)
    census.add("experts.down_proj_bias", "other", experts, hidden, times=layers)
    census.add("router", "other", experts, hidden + 1, times=layers)
    idle = max(experts - shape.experts, 0) * 3 * hidden * width * layers
    return Architecture("gpt_oss", tuple(census.tensors), shape, idle, (QKV,))


def llama4_text(c: Config) -> Architecture:
    """Build Llama 4's decoder: each layer, or every other one, has routed experts and a shared one."""
    census, shape = Census(), mixture_shape(c, c.number("intermediate_size"), 1)
    hidden, layers, bias = shape.hidden, shape.layers, c.flag(("attention_bias", False))
    add_ends(census, c, shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, shape, bias)
    listed = c.numbers("moe_layers")
    sparse = len(listed) if listed else layers // c.number("interleave_moe_layer_step", default=1)
    experts, width = c.number("num_local_experts", "num_experts"), c.number("intermediate_size")
    add_gated(census, hidden, c.number("intermediate_size_mlp", default=2 * width), layers - sparse)
    add_gated(census, hidden, width, sparse)
    census.add("experts.gate_up_proj", "experts", experts, hidden, 2 * width, times=sparse)
    census.add("experts.down_proj", "experts", experts, width, hidden, times=sparse)
    census.add("router", "other", experts, hidden, times=sparse)
    idle = max(experts - shape.experts, 0) * 3 * hidden * width * sparse
    return Architecture("llama4_text", tuple(census.tensors), shape, idle, (QKV, GATED))


def add_attention(census: Census, shape: TensorShape, bias: bool, *, out_bias: bool | None = None) -> None:
    """Add queries, keys, values and output. `out_bias`: that of the output, if it differs."""
    for module, heads in zip(QKV, (shape.heads, shape.kv_heads, shape.kv_heads), strict=True):
        census.linear(module, shape.hidden, heads * shape.head_dim, bias, shape.layers)
    census.linear("o_proj", shape.heads * shape.head_dim, shape.hidden, bias if out_bias is None else out_bias, shape.layers)


def add_head_norms(census: Census, shape: TensorShape) -> None:
    for module in ("q_norm", "k_norm"):
        census.norm(module, shape.head_dim, times=shape.layers)


def mixture_shape(c: Config, width: int, shared: int, used: int = 0) -> TensorShape:
    hidden, heads = c.number("hidden_size"), c.number("num_attention_heads")
    used = used or c.number("num_experts_per_tok", "experts_per_token")
    of_head = c.number("qk_nope_head_dim", default=0, least=0) + c.number("qk_rope_head_dim", default=0, least=0)
    return TensorShape(
        family="qwen3_moe",
        hidden=hidden,
        layers=c.number("num_hidden_layers", most=10_000),
        heads=heads,
        kv_heads=heads if of_head else c.number("num_key_value_heads", default=heads),
        head_dim=of_head or c.number("head_dim", default=hidden // heads or 1),
        ffn=(used + shared) * width,
        vocabulary=c.number("vocab_size") if c.head not in ("SequenceClassification", "TokenClassification", "Model") else 0,
        positions=c.number("max_position_embeddings", default=0, least=0),
        experts=used,
    )


def add_ends(census: Census, c: Config, shape: TensorShape) -> None:
    """Add embeddings, final norm and head."""
    rows, hidden = c.number("vocab_size"), shape.hidden
    census.add("embed_tokens", "embedding", rows, hidden)
    census.norm("final_norm", hidden)
    if c.head in ("SequenceClassification", "TokenClassification"):
        census.add("score", "other", c.labels, hidden)
    elif c.head != "Model" and not c.flag(("tie_word_embeddings", False)):
        census.add("lm_head", "head", rows, hidden)


def add_gated(census: Census, hidden: int, width: int, times: int, bias: bool = False) -> None:
    if times:
        for module in GATED:
            census.linear(module, hidden, width, bias, times)
        census.linear("down_proj", width, hidden, bias, times)


MIXTURES: Mapping[str, Callable[[Config], Architecture]] = {
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "kimi_k2": deepseek,
    "glm4_moe_lite": deepseek,
    "mistral4": deepseek,
    "deepseek_v32": glm_moe_dsa,
    "minicpm3": minicpm3,
    "dots1": glm4_moe,
    "afmoe": afmoe,
    "ernie4_5_moe": ernie_moe,
    "glm4_moe": glm4_moe,
    "glm_moe_dsa": glm_moe_dsa,
    "hunyuan_v1_moe": hunyuan_moe,
    "dbrx": dbrx,
    "gpt_oss": gpt_oss,
    "llama4_text": llama4_text,
}
