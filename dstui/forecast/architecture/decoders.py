"""Decoders: a table of each family's traits, and a function that lists their tensors.

Sources: transformers' modeling_*.py of release 5.23. The tests count the same configurations on torch's meta device.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dstui.base.dataclass import dataclass
from dstui.forecast.architecture.config import Config, Flag
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape

NO_BIAS: Flag = False
ATTENTION_BIAS: Flag = ("attention_bias", False)
PLAIN = MappingProxyType[str, str]({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The differences of a family from LLaMA, whose traits are the defaults."""

    norms: int = 2
    """Norms of a layer, each as wide as the hidden state."""
    norm: str = "rms"
    """rms (a scale), layer (a scale and a bias), none (no parameters)."""
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """The linear layers of the attention; a single name means a fused one."""
    out: str = "o_proj"
    qkv_bias: Flag = ATTENTION_BIAS
    out_bias: Flag = ATTENTION_BIAS
    grouped: bool = True
    """True if the configuration may have fewer key heads than query heads, and a head size of its own."""
    qk_norm: str = ""
    """Norms of queries and keys: head (one head wide), heads (a scale per head), width (all heads wide)."""
    qk_norm_if: Flag = True
    mlp: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    """Two names: up, down. Three: gate, up, down. A name with + holds two."""
    mlp_bias: Flag = NO_BIAS
    width: str = "intermediate_size"
    """The key of the MLP's width; four hidden sizes if the configuration does not have it."""
    experts: str = ""
    """The key of the width of one expert, if there are experts instead of the MLP."""
    positions: str = ""
    """The key of the learned positions; empty for rotary ones and ALiBi."""
    position_offset: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    tied: bool = False
    head_bias: Flag = False
    activation: int = 0
    """The parameters of an MLP's activation."""
    activations: str = "llama"
    """The family whose measured activations apply."""


GPT2 = Decoder(
    grouped=False, width="n_inner", norm="layer", qkv=("c_attn",),
    out="c_proj", qkv_bias=True, out_bias=True, mlp=("c_fc", "c_proj"), mlp_bias=True,
    positions="n_positions", tied=True, activations="gpt2",
)  # fmt: skip
OPT = Decoder(
    grouped=False, width="ffn_dim", norm="layer",
    out="out_proj", qkv_bias=("enable_bias", True), out_bias=("enable_bias", True), mlp=("fc1", "fc2"),
    mlp_bias=("enable_bias", True), positions="max_position_embeddings", position_offset=2, tied=True, activations="opt",
)  # fmt: skip
BLOOM = Decoder(
    grouped=False, width="", norm="layer", qkv=("query_key_value",),
    out="dense", qkv_bias=True, out_bias=True, mlp=("dense_h_to_4h", "dense_4h_to_h"),
    mlp_bias=True, embedding_norm=True, tied=True, activations="bloom",
)  # fmt: skip
NEOX = Decoder(
    grouped=False, norm="layer", qkv=("query_key_value",),
    out="dense", qkv_bias=("attention_bias", True), out_bias=("attention_bias", True),
    mlp=("dense_h_to_4h", "dense_4h_to_h"), mlp_bias=True, activations="gpt_neox",
)  # fmt: skip
FALCON = Decoder(
    grouped=False, width="ffn_hidden_size", norm="layer", qkv=("query_key_value",),
    out="dense", qkv_bias=("bias", False), out_bias=("bias", False),
    mlp=("dense_h_to_4h", "dense_4h_to_h"), mlp_bias=("bias", False), tied=True, activations="gpt_neox",
)  # fmt: skip
PHI = Decoder(
    norms=1, norm="layer", out="dense", qkv_bias=True, out_bias=True, qk_norm="layer", qk_norm_if=("qk_layernorm", False),
    mlp=("fc1", "fc2"), mlp_bias=True, head_bias=True, activations="phi",
)  # fmt: skip
STARCODER2 = Decoder(
    norm="layer", qkv_bias=("use_bias", True), out_bias=("use_bias", True), mlp=("c_fc", "c_proj"), mlp_bias=("use_bias", True), tied=True,
    activations="starcoder2",
)  # fmt: skip
STABLELM = Decoder(
    norm="layer", qkv_bias=("use_qkv_bias", False), out_bias=False, qk_norm="heads", qk_norm_if=("qk_layernorm", False),
    activations="stablelm",
)  # fmt: skip
COHERE = Decoder(norms=1, qk_norm="heads", qk_norm_if=("use_qk_norm", False), tied=True, activations="cohere")
PHI3 = Decoder(
    qkv=("qkv_proj",), qkv_bias=False, out_bias=False, mlp=("gate_up_proj+", "down_proj"), activations="phi3"
)  # fmt: skip
QWEN2 = Decoder(qkv_bias=True, out_bias=False, activations="qwen2")
QWEN3 = Decoder(qk_norm="head", activations="qwen3")
GEMMA = Decoder(tied=True, activations="gemma")

DECODERS: Mapping[str, Decoder] = {
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gptj": Decoder(
        grouped=False, width="n_inner", norms=1, norm="layer",
        out="out_proj", qkv_bias=False, out_bias=False, mlp=("fc_in", "fc_out"), mlp_bias=True, head_bias=True,
        activations="phi",
    ),
    "gpt_neo": Decoder(
        grouped=False, norm="layer", out="out_proj", qkv_bias=False, out_bias=True, mlp=("c_fc", "c_proj"), mlp_bias=True,
        positions="max_position_embeddings", tied=True, activations="gpt2",
    ),
    "opt": OPT,
    "bloom": BLOOM,
    "gpt_neox": NEOX,
    "falcon": FALCON,
    "llama": Decoder(mlp_bias=("mlp_bias", False)),
    "mistral": Decoder(qkv_bias=False, out_bias=False),
    "ministral3": Decoder(qkv_bias=False, out_bias=False),
    "mixtral": Decoder(qkv_bias=False, out_bias=False, experts="intermediate_size", activations="mixtral"),
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen2_moe": Decoder(qkv_bias=("qkv_bias", True), out_bias=False, experts="moe_intermediate_size", activations="qwen2_moe"),
    "qwen3_moe": Decoder(qk_norm="head", experts="moe_intermediate_size", activations="qwen3_moe"),
    "olmo": Decoder(norm="none", activations="olmo"),
    "olmo2": Decoder(qk_norm="width", activations="olmo2"),
    "olmo3": Decoder(qk_norm="width", activations="olmo2"),
    "olmoe": Decoder(qk_norm="width", experts="intermediate_size", activations="qwen3_moe"),
    "gemma": GEMMA,
    "gemma2": Decoder(norms=4, tied=True, activations="gemma2"),
    "gemma3_text": Decoder(norms=4, qk_norm="head", tied=True, activations="gemma3_text"),
    "phi": PHI,
    "phi3": PHI3,
    "starcoder2": STARCODER2,
    "granite": Decoder(mlp_bias=("mlp_bias", False)),
    "granitemoe": Decoder(experts="intermediate_size", activations="mixtral"),
    "cohere": COHERE,
    "cohere2": Decoder(norms=1, tied=True, activations="cohere"),
    "stablelm": STABLELM,
    "smollm3": Decoder(mlp_bias=("mlp_bias", False), tied=True),
    "mpt": Decoder(
        grouped=False, width="", qkv=("Wqkv",), out="out_proj", qkv_bias=False, out_bias=False,
        mlp=("up_proj", "down_proj"), tied=True, activations="bloom",
    ),  # its norms have no bias
    "codegen": Decoder(
        grouped=False, width="n_inner", norms=1, norm="layer", qkv=("qkv_proj",),
        out="out_proj", qkv_bias=False, out_bias=False, mlp=("fc_in", "fc_out"), mlp_bias=True, head_bias=True, activations="phi",
    ),
    "nemotron": Decoder(norm="layer", mlp=("up_proj", "down_proj"), mlp_bias=("mlp_bias", False), activations="starcoder2"),
    "glm": Decoder(qkv_bias=ATTENTION_BIAS, out_bias=False, mlp=("gate_up_proj+", "down_proj"), activations="phi3"),
    "glm4": Decoder(norms=4, qkv_bias=("attention_bias", True), out_bias=False, mlp=("gate_up_proj+", "down_proj"), activations="phi3"),
    "seed_oss": Decoder(out_bias=("attention_out_bias", False)),
    "hunyuan_v1_dense": Decoder(qk_norm="head", activations="qwen3"),
    "ernie4_5": Decoder(qkv_bias=("use_bias", False), out_bias=("use_bias", False), mlp_bias=("use_bias", False), tied=True),
    "exaone4": Decoder(qkv_bias=False, out_bias=False, qk_norm="head", activations="qwen3"),
    "apertus": Decoder(qk_norm="head", mlp=("up_proj", "down_proj"), activation=2, activations="starcoder2"),
    "arcee": Decoder(mlp=("up_proj", "down_proj"), mlp_bias=("mlp_bias", False), activations="starcoder2"),
    "helium": Decoder(out_bias=False, mlp_bias=("mlp_bias", False)),
    "phimoe": Decoder(norm="layer", experts="intermediate_size", head_bias=("lm_head_bias", False), activations="mixtral"),
    "minimax_m2": Decoder(qk_norm="width", experts="intermediate_size", activations="qwen3_moe"),
}  # fmt: skip
"""`model_type` -> its traits."""
WITHOUT_ATTENTION: Mapping[str, Decoder] = {
    "qwen3_next": Decoder(experts="moe_intermediate_size", activations="qwen3_moe"),
    "qwen3_5": Decoder(activations="qwen3"),
    "mllama_text_model": Decoder(),
}
"""Traits of decoders that need more than the function `decoder`."""


def decoder(c: Config, kind: str) -> Architecture:
    """Build the tensors of a decoder."""
    traits = DECODERS[kind]
    shape = _shape(c, kind, traits)
    census = Census()
    _ends(census, c, traits, shape)
    _norms(census, c, kind, traits, shape)
    _attention(census, c, traits, shape)
    idle = _mlps(census, c, traits, shape)
    groups = (traits.qkv, traits.mlp[:-1])
    return Architecture(kind, tuple(census.tensors), shape, idle, groups)


def decoder_tensors(c: Config, kind: str) -> tuple[Census, TensorShape]:
    """Return all tensors of a decoder except its attention, for models with other layers instead."""
    traits = WITHOUT_ATTENTION[kind]
    shape, census = _shape(c, kind, traits), Census()
    _ends(census, c, traits, shape)
    _norms(census, c, kind, traits, shape)
    _mlps(census, c, traits, shape)
    return census, shape


def _shape(c: Config, kind: str, traits: Decoder) -> TensorShape:
    hidden = c.number("hidden_size", "n_embd", "d_model")
    heads = c.number("num_attention_heads", "n_head", "n_heads", "num_heads")
    width = c.number(traits.width, default=4 * hidden)
    return TensorShape(
        family=traits.activations,
        hidden=hidden,
        layers=c.number("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=10_000),
        heads=heads,
        kv_heads=_kv_heads(c, kind, heads, traits.grouped),
        head_dim=c.number("head_dim", default=hidden // heads or 1) if traits.grouped else hidden // heads or 1,
        ffn=_width_of_a_token(c, traits, width),
        vocabulary=c.number("vocab_size") if c.head not in ("SequenceClassification", "TokenClassification", "Model") else 0,
        positions=c.number("max_position_embeddings", "n_positions", "max_seq_len", default=0, least=0),
        experts=c.number("num_experts_per_tok", least=1) if traits.experts else 0,
    )


def _kv_heads(c: Config, kind: str, heads: int, grouped: bool) -> int:
    if kind == "gpt_bigcode":
        return 1 if c.flag(("multi_query", True)) else heads
    if kind == "falcon":
        if c.flag(("new_decoder_architecture", False)):
            return c.number("num_kv_heads", default=heads)
        return 1 if c.flag(("multi_query", True)) else heads
    return c.number("num_key_value_heads", default=heads) if grouped else heads


def _width_of_a_token(c: Config, traits: Decoder, width: int) -> int:
    """Return the width of the MLP for one token: its experts and the shared one together."""
    if not traits.experts:
        return width
    of_expert = c.number(traits.experts)
    shared = c.number("shared_expert_intermediate_size", default=0, least=0)
    return c.number("num_experts_per_tok", least=1) * of_expert + shared


def _ends(census: Census, c: Config, traits: Decoder, shape: TensorShape) -> None:
    """Add embeddings, positions, final norm and head."""
    rows, narrow = c.number("vocab_size"), c.number("word_embed_proj_dim", default=shape.hidden)
    census.add("embed_tokens", "embedding", rows, narrow)
    if narrow != shape.hidden:
        census.linear("project_in", narrow, shape.hidden)
        census.linear("project_out", shape.hidden, narrow)
    if traits.positions:
        census.add("positions", "embedding", c.number(traits.positions) + traits.position_offset, shape.hidden)
    bias = traits.norm == "layer" and c.text("model_type") not in ("cohere", "cohere2")
    if traits.embedding_norm:
        census.norm("embedding_norm", shape.hidden, bias)
    removed = not c.flag(("do_layer_norm_before", True)) or c.flag(("_remove_final_layer_norm", False))
    if traits.final_norm and traits.norm != "none" and not removed:
        census.norm("final_norm", shape.hidden, bias)
    if c.head in ("SequenceClassification", "TokenClassification"):
        census.add("score", "other", c.labels, shape.hidden)
    elif c.head != "Model":
        if not c.flag(("tie_word_embeddings", traits.tied)):
            census.add("lm_head", "head", rows, narrow)
        if c.flag(traits.head_bias):
            census.add("lm_head", "other", rows)


def _norms(census: Census, c: Config, kind: str, traits: Decoder, shape: TensorShape) -> None:
    """Add the norms of the hidden state in each layer; parallel branches share one."""
    if traits.norm == "none" or not c.flag(("layer_norm_elementwise_affine", True)):
        return
    count = traits.norms
    if kind == "falcon":
        both = c.number("num_ln_in_parallel_attn", default=2 if c.flag(("new_decoder_architecture", False)) else 1)
        new = c.flag(("new_decoder_architecture", False))
        count = (2 if both == 2 else 1) if new else 1 if c.flag(("parallel_attn", True)) else 2
    elif kind == "stablelm":
        count = 1 if c.flag(("use_parallel_residual", False)) else 2
    census.norm("norm", shape.hidden, traits.norm == "layer", times=count * shape.layers)


def _attention(census: Census, c: Config, traits: Decoder, shape: TensorShape) -> None:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    widths = (queries, keys, keys) if len(traits.qkv) == 3 else (queries + 2 * keys,)
    for module, width in zip(traits.qkv, widths, strict=True):
        census.linear(module, shape.hidden, width, c.flag(traits.qkv_bias), shape.layers)
    census.linear(traits.out, queries, shape.hidden, c.flag(traits.out_bias), shape.layers)
    if not traits.qk_norm or not c.flag(traits.qk_norm_if):
        return
    per_head = {"head": (1, 1), "layer": (1, 1), "heads": (shape.heads, shape.kv_heads), "width": (shape.heads, shape.kv_heads)}
    for module, heads in zip(("q_norm", "k_norm"), per_head[traits.qk_norm], strict=True):
        census.norm(module, heads * shape.head_dim, traits.qk_norm == "layer", times=shape.layers)


def _mlps(census: Census, c: Config, traits: Decoder, shape: TensorShape) -> int:
    """Add the MLP or the experts of each layer. Return the parameters of experts that a token does not use."""
    hidden, layers = shape.hidden, shape.layers
    if not traits.experts:
        _mlp(census, traits.mlp, hidden, shape.ffn, c.flag(traits.mlp_bias), layers)
        if traits.activation:
            census.add("act_fn", "other", traits.activation, times=layers)
        return 0
    step, plain = c.number("decoder_sparse_step", default=1, least=0), set(c.numbers("mlp_only_layers"))
    experts = c.number("num_experts", "num_local_experts", least=1)
    sparse = sum(1 for layer in range(layers) if layer not in plain and step and (layer + 1) % step == 0)
    width = c.number(traits.experts)
    if sparse < layers:
        _mlp(census, traits.mlp, hidden, c.number("intermediate_size"), False, layers - sparse)
    if sparse:
        census.add("experts.gate_up_proj", "experts", experts, 2 * width, hidden, times=sparse)
        census.add("experts.down_proj", "experts", experts, hidden, width, times=sparse)
        census.add("router", "other", experts, hidden, times=sparse)
        shared = c.number("shared_expert_intermediate_size", default=0, least=0)
        if shared:
            _mlp(census, traits.mlp, hidden, shared, False, sparse)
            census.linear("shared_expert_gate", hidden, 1, times=sparse)
    used = min(c.number("num_experts_per_tok", least=1), experts)
    return (experts - used) * 3 * hidden * width * sparse


def _mlp(census: Census, names: tuple[str, ...], hidden: int, width: int, bias: bool, times: int) -> None:  # noqa: PLR0913, PLR0917
    *into, back = names
    for module in into:
        census.linear(module.rstrip("+"), hidden, 2 * width if module.endswith("+") else width, bias, times)
    census.linear(back, width, hidden, bias, times)
