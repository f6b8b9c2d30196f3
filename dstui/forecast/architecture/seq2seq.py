"""Encoder-decoder models: T5, BART and Whisper. Sources: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape


def t5(c: Config) -> Architecture:
    """Build T5, its later versions with gated MLPs, and mT5."""
    h, heads, of_head, width = c.number("d_model"), c.number("num_heads"), c.number("d_kv"), c.number("d_ff")
    encoder, rows = c.number("num_layers", most=10_000), c.number("vocab_size")
    decoder = c.number("num_decoder_layers", default=encoder, most=10_000)
    into = ("wi_0", "wi_1") if c.text("feed_forward_proj").startswith("gated") else ("wi",)
    census = Census()
    census.add("shared", "embedding", rows, h)
    if not c.flag(("tie_word_embeddings", True)):
        census.add("lm_head", "head", rows, h)
    for module in ("q", "k", "v"):
        census.linear(module, h, heads * of_head, times=encoder + 2 * decoder)
    census.linear("o", heads * of_head, h, times=encoder + 2 * decoder)
    for module in into:
        census.linear(module, h, width, times=encoder + decoder)
    census.linear("wo", width, h, times=encoder + decoder)
    census.norm("layer_norm", h, times=2 * encoder + 3 * decoder + 2)
    census.add("relative_attention_bias", "embedding", c.number("relative_attention_num_buckets", default=32), heads, times=2)
    return Architecture(
        c.text("model_type"), tuple(census.tensors), _shape(c, "t5", of_head, width, encoder + decoder), groups=(("q", "k", "v"), into)
    )


def bart(c: Config) -> Architecture:
    """Build BART."""
    h, rows, head = c.number("d_model"), c.number("vocab_size"), c.head
    encoder, decoder = c.number("encoder_layers", most=10_000), c.number("decoder_layers", most=10_000)
    census = Census()
    census.add("shared", "embedding", rows, h)
    census.add("embed_positions", "embedding", c.number("max_position_embeddings") + 2, h, times=2)
    census.norm("layernorm_embedding", h, True, 2)
    for module in ("q_proj", "k_proj", "v_proj", "out_proj"):
        census.linear(module, h, h, True, encoder + 2 * decoder)
    for width, times in ((c.number("encoder_ffn_dim"), encoder), (c.number("decoder_ffn_dim"), decoder)):
        census.linear("fc1", h, width, True, times)
        census.linear("fc2", width, h, True, times)
    census.norm("layer_norm", h, True, 2 * encoder + 3 * decoder)
    if head == "SequenceClassification":
        census.linear("dense", h, h, True)
        census.linear("classifier", h, c.labels, True)
    shape = _shape(c, "bart", h // c.number("encoder_attention_heads") or 1, c.number("encoder_ffn_dim"), encoder + decoder)
    return Architecture("bart", tuple(census.tensors), shape, groups=(("q_proj", "k_proj", "v_proj"),))


def whisper(c: Config) -> Architecture:
    """Build Whisper: two convolutions over the audio, then BART without biases of the keys."""
    h, rows, mels = c.number("d_model"), c.number("vocab_size"), c.number("num_mel_bins", default=80)
    encoder, decoder = c.number("encoder_layers", most=10_000), c.number("decoder_layers", most=10_000)
    census = Census()
    census.add("conv1", "other", h, mels * 3 + 1)
    census.add("conv2", "other", h, h * 3 + 1)
    census.add("embed_positions", "embedding", c.number("max_source_positions", default=1500), h)
    census.add("embed_tokens", "embedding", rows, h)
    census.add("embed_positions", "embedding", c.number("max_target_positions", default=448), h)
    for module in ("q_proj", "k_proj", "v_proj", "out_proj"):
        census.linear(module, h, h, module != "k_proj", encoder + 2 * decoder)
    for width, times in ((c.number("encoder_ffn_dim"), encoder), (c.number("decoder_ffn_dim"), decoder)):
        census.linear("fc1", h, width, True, times)
        census.linear("fc2", width, h, True, times)
    census.norm("layer_norm", h, True, 2 * encoder + 3 * decoder + 2)
    shape = _shape(c, "bart", h // c.number("encoder_attention_heads") or 1, c.number("encoder_ffn_dim"), encoder + decoder)
    return Architecture("whisper", tuple(census.tensors), shape, groups=(("q_proj", "k_proj", "v_proj"),))


def _shape(c: Config, family: str, head_dim: int, ffn: int, layers: int) -> TensorShape:
    heads = c.number("num_heads", "encoder_attention_heads")
    return TensorShape(
        family=family,
        hidden=c.number("d_model"),
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn=ffn,
        vocabulary=0 if c.head in ("SequenceClassification", "Model", "EncoderModel") else c.number("vocab_size"),
        positions=c.number("max_position_embeddings", default=0, least=0),
    )


SEQ2SEQ: Mapping[str, Callable[[Config], Architecture]] = {"t5": t5, "mt5": t5, "bart": bart, "whisper": whisper}
