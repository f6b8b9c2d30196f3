"""Gemma 3n: a decoder with embeddings for each layer, several streams of the hidden state, and towers for images and audio.

Source: transformers' modeling_gemma3n.py of release 5.23. The last layers read keys and values of earlier ones; checkpoints still store
their unused projections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape

VISION_TOWER = 294_126_912
"""Parameters of timm's mobilenetv5_300m_enc (1.0.22), the only vision tower of these models: its sizes are not in the file."""


def gemma3n_text(c: Config) -> Architecture:
    """Build the decoder alone."""
    hidden, layers, heads = c.number("hidden_size"), c.number("num_hidden_layers", most=10_000), c.number("num_attention_heads", default=8)
    kv_heads, of_head = c.number("num_key_value_heads", default=2), c.number("head_dim", default=256)
    rows, width, bias = c.number("vocab_size", default=262_400), c.size("intermediate_size", 16_384), c.flag(("attention_bias", False))
    census = Census()
    census.add("embed_tokens", "embedding", rows, hidden)
    if c.head != "Model" and not c.flag(("tie_word_embeddings", True)):
        census.add("lm_head", "head", rows, hidden)
    own = layers - min(c.number("num_kv_shared_layers", default=15, least=0), layers)
    census.linear("q_proj", hidden, heads * of_head, bias, layers)
    census.linear("k_proj", hidden, kv_heads * of_head, bias, own)
    census.linear("v_proj", hidden, kv_heads * of_head, bias, own)
    census.linear("o_proj", heads * of_head, hidden, bias, layers)
    census.norm("q_norm", of_head, times=layers)
    census.norm("k_norm", of_head, times=own)
    for module in ("gate_proj", "up_proj"):
        census.linear(module, hidden, width, times=layers)
    census.linear("down_proj", width, hidden, times=layers)
    census.norm("norm", hidden, times=4 * layers + 1)
    _streams(census, c, hidden, layers)
    shape = TensorShape(
        family="gemma3_text",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=of_head,
        ffn=width,
        vocabulary=rows if c.head != "Model" else 0,
        positions=c.number("max_position_embeddings", default=0, least=0),
    )
    return Architecture("gemma3n_text", tuple(census.tensors), shape, groups=(("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")))


def _streams(census: Census, c: Config, hidden: int, layers: int) -> None:
    """Add AltUp's streams, the low-rank LAuReL branch and the embeddings for each layer."""
    streams, rank, narrow = (
        c.number("altup_num_inputs", default=4),
        c.number("laurel_rank", default=64),
        c.number("hidden_size_per_layer_input", default=256),
    )
    if c.flag(("altup_correct_scale", True)):
        census.add("correct_output_scale", "other", hidden, times=layers)
    census.linear("correction_coefs", streams, streams, times=layers)
    census.linear("prediction_coefs", streams, streams * streams, times=layers)
    census.linear("modality_router", hidden, streams, times=layers)
    census.norm("router_norm", hidden, times=layers)
    for module in ("altup_projections", "altup_unembed_projections"):
        census.linear(module, hidden, hidden, times=streams - 1)
    census.linear("linear_left", hidden, rank, times=layers)
    census.linear("linear_right", rank, hidden, times=layers)
    census.linear("per_layer_input_gate", hidden, narrow, times=layers)
    census.linear("per_layer_projection", narrow, hidden, times=layers)
    census.norm("post_norm", hidden, times=2 * layers)
    census.add("embed_tokens_per_layer", "other", c.number("vocab_size_per_layer_input", default=262_144), layers * narrow)
    census.linear("per_layer_model_projection", hidden, layers * narrow)
    census.norm("per_layer_projection_norm", narrow)


def gemma3n(c: Config) -> Architecture:
    """Build the whole model: the decoder, MobileNet-V5 for images, and a conformer for audio."""
    text, census = gemma3n_text(c.text_config()), Census()
    vision, audio = c.part("vision_config"), c.part("audio_config")
    census.add("vision_tower", "other", VISION_TOWER)
    _embedder(census, vision.number("hidden_size", default=2048), vision.number("vocab_size", default=128), text.shape.hidden)
    h, layers, kernel = (
        audio.number("hidden_size", default=1536),
        audio.number("conf_num_hidden_layers", default=12, most=10_000),
        audio.number("conf_conv_kernel_size", default=5),
    )
    first, second = audio.numbers("sscp_conv_channel_size") or (128, 32)
    census.add("subsample_conv", "other", first, 9 + 1)
    census.add("subsample_conv", "other", second, first * 9 + 1)
    census.linear("input_proj_linear", second * (audio.number("input_feat_size", default=128) // 4), h)
    for module, into, out, times in (
        ("ffw_layer_1", h, 4 * h, 2), ("ffw_layer_2", 4 * h, h, 2), ("pos_proj", h, h, 1), ("q_proj", h, h, 1), ("k_proj", h, h, 1),
        ("v_proj", h, h, 1), ("post", h, h, 1), ("linear_start", h, 2 * h, 1), ("linear_end", h, h, 1),
    ):  # fmt: skip
        census.linear(module, into, out, times=times * layers)
    census.add("per_dim_scale", "other", h // audio.number("conf_num_attention_heads", default=8), times=layers)
    census.add("depthwise_conv1d", "other", h, kernel, times=layers)
    census.norm("norm", h, times=9 * layers)
    _embedder(census, h, audio.number("vocab_size", default=128), text.shape.hidden)
    return Architecture("gemma3n", (*text.tensors, *census.tensors), text.shape, groups=text.groups)


def _embedder(census: Census, inner: int, rows: int, hidden: int) -> None:
    """Add the projection of a tower's output, and the tokens that mark its parts."""
    census.add("embedding", "other", rows, inner)
    census.norm("embedding_norm", inner, times=2)
    census.linear("embedding_projection", inner, hidden)


GEMMA3N: Mapping[str, Callable[[Config], Architecture]] = {"gemma3n": gemma3n, "gemma3n_text": gemma3n_text}
