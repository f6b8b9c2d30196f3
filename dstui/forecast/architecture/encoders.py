"""Encoders: BERT and similar models, and vision transformers. Sources: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.tensors import Architecture, Census, TensorShape

NAMES = {"bert": ("query", "key", "value", "dense", "dense", "dense"), "distilbert": ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2")}
DEBERTA_NAMES = ("query_proj", "key_proj", "value_proj", "dense", "dense", "dense")
VIT_NAMES, SIGLIP_NAMES = NAMES["bert"], ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")


def _layers(census: Census, names: tuple[str, ...], shape: TensorShape, qkv_bias: bool = True) -> None:
    """Add layers of a plain transformer: four linear layers of attention, two of the MLP, two norms."""
    h, times = shape.hidden, shape.layers
    query, key, value, out, widen, narrow = names
    for module in (query, key, value):
        census.linear(module, h, h, qkv_bias, times)
    census.linear(out, h, h, True, times)
    census.linear(widen, h, shape.ffn, True, times)
    census.linear(narrow, shape.ffn, h, True, times)
    census.norm("norm", h, True, 2 * times)


def _shape(c: Config, family: str, vocabulary: int) -> TensorShape:
    hidden, heads = c.number("hidden_size", "dim"), c.number("num_attention_heads", "n_heads")
    return TensorShape(
        family=family,
        hidden=hidden,
        layers=c.number("num_hidden_layers", "n_layers", most=10_000),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads or 1,
        ffn=c.number("intermediate_size", "hidden_dim"),
        vocabulary=vocabulary,
        positions=c.number("max_position_embeddings", default=0, least=0),
    )


def _bert_like(kind: str, *, types: bool = True) -> Callable[[Config], Architecture]:
    def build(c: Config) -> Architecture:
        head, rows = c.head or "MaskedLM", c.number("vocab_size")
        shape = _shape(c, "bert", rows if head in ("MaskedLM", "PreTraining") else 0)
        names, h, census = NAMES["distilbert" if kind == "distilbert" else "bert"], shape.hidden, Census()
        census.add("word_embeddings", "embedding", rows, h)
        census.add("position_embeddings", "embedding", c.number("max_position_embeddings"), h)
        if types:
            census.add("token_type_embeddings", "embedding", c.number("type_vocab_size"), h)
        census.norm("embedding_norm", h, True)
        _layers(census, names, shape)
        HEADS[kind](census, c, head, shape)
        return Architecture(kind, tuple(census.tensors), shape, groups=(names[:3],))

    return build


def _masked(census: Census, h: int, rows: int) -> None:
    """Add the head of masked language models: a linear layer, a norm, and the biases beside the tied embedding."""
    census.linear("transform", h, h, True)
    census.norm("transform_norm", h, True)
    census.add("decoder", "other", rows)


def _bert_head(census: Census, c: Config, head: str, shape: TensorShape) -> None:
    h = shape.hidden
    if head in ("Model", "SequenceClassification", "PreTraining", "NextSentencePrediction", "MultipleChoice"):
        census.linear("pooler", h, h, True)
    if shape.vocabulary:
        _masked(census, h, shape.vocabulary)
    _classes(census, h, {"PreTraining": 2, "NextSentencePrediction": 2, "MultipleChoice": 1}.get(head, _labels(c, head)))


def _roberta_head(census: Census, c: Config, head: str, shape: TensorShape) -> None:
    h = shape.hidden
    if head in ("Model", "MultipleChoice"):
        census.linear("pooler", h, h, True)
    if shape.vocabulary:
        _masked(census, h, shape.vocabulary)
    if head == "SequenceClassification":
        census.linear("dense", h, h, True)
    _classes(census, h, 1 if head == "MultipleChoice" else _labels(c, head))


def _distilbert_head(census: Census, c: Config, head: str, shape: TensorShape) -> None:
    h = shape.hidden
    if shape.vocabulary:
        _masked(census, h, shape.vocabulary)
    if head in ("SequenceClassification", "MultipleChoice"):
        census.linear("pre_classifier", h, h, True)
    _classes(census, h, 1 if head == "MultipleChoice" else _labels(c, head))


def _labels(c: Config, head: str) -> int:
    return (
        c.labels if head in ("SequenceClassification", "TokenClassification", "ImageClassification") else 2 * (head == "QuestionAnswering")
    )


def _classes(census: Census, h: int, labels: int) -> None:
    if labels:
        census.add("classifier", "other", labels, h)
        census.add("classifier", "other", labels)


HEADS: Mapping[str, Callable[[Census, Config, str, TensorShape], None]] = {
    "bert": _bert_head,
    "roberta": _roberta_head,
    "xlm-roberta": _roberta_head,
    "distilbert": _distilbert_head,
}


def deberta(c: Config) -> Architecture:
    """Build DeBERTa, whose positions are relative, and its later versions, whose keys for positions are those for tokens."""
    kind, head, rows, census = c.text("model_type"), c.head or "MaskedLM", c.number("vocab_size"), Census()
    shape = _shape(c, "bert", rows if head == "MaskedLM" else 0)
    h, layers, later = shape.hidden, shape.layers, kind == "deberta-v2"
    kinds = c.texts("pos_att_type") or tuple(c.text("pos_att_type").split("|"))
    census.add("word_embeddings", "embedding", rows, h)
    if c.flag(("position_biased_input", True)):
        census.add("position_embeddings", "embedding", shape.positions, h)
    if types := c.number("type_vocab_size", default=0, least=0):
        census.add("token_type_embeddings", "embedding", types, h)
    census.norm("embedding_norm", h, True)
    _layers(census, DEBERTA_NAMES if later else NAMES["bert"], shape, qkv_bias=later)
    if not later:  # the keys have no bias
        census.add("q_bias", "other", h, times=layers)
        census.add("v_bias", "other", h, times=layers)
    if c.flag(("relative_attention", False)):
        reach = c.number("max_relative_positions", default=-1, least=-1)
        reach = reach if reach >= 1 else shape.positions
        buckets = c.number("position_buckets", default=-1, least=-1) if later else -1
        census.add("rel_embeddings", "embedding", 2 * (buckets if buckets > 0 else reach), h)
        if later and "layer_norm" in c.text("norm_rel_ebd"):
            census.norm("rel_norm", h, True)
        shared = later and c.flag(("share_att_key", False))
        if not shared and "c2p" in kinds:
            census.linear("pos_key_proj" if later else "pos_proj", h, h, later, layers)
        if not shared and "p2c" in kinds:
            census.linear("pos_query_proj" if later else "pos_q_proj", h, h, True, layers)
    if later and (kernel := c.number("conv_kernel_size", default=0, least=0)):
        census.add("conv", "other", h, h * kernel + 1)
        census.norm("conv_norm", h, True)
    if shape.vocabulary:
        _masked(census, h, rows)
    if head == "SequenceClassification":
        census.linear("pooler", h, h, True)
    _classes(census, h, 1 if head == "MultipleChoice" else _labels(c, head))
    return Architecture(kind, tuple(census.tensors), shape, groups=(DEBERTA_NAMES[:3],))


def modernbert(c: Config) -> Architecture:
    """Build ModernBERT: rotary positions, gated MLPs, no norm before the attention of the first layer."""
    head, census, rows = c.head or "MaskedLM", Census(), c.number("vocab_size")
    shape = _shape(c, "bert", rows if head == "MaskedLM" else 0)
    h, layers, bias = shape.hidden, shape.layers, c.flag(("norm_bias", False))
    census.add("tok_embeddings", "embedding", rows, h)
    census.norm("norm", h, bias, 2 * layers + 1)  # of the embedding, before each part of a layer except the first, and the last one
    census.linear("Wqkv", h, 3 * h, c.flag(("attention_bias", False)), layers)
    census.linear("Wo", h, h, c.flag(("attention_bias", False)), layers)
    census.linear("Wi", h, 2 * shape.ffn, c.flag(("mlp_bias", False)), layers)
    census.linear("Wo", shape.ffn, h, c.flag(("mlp_bias", False)), layers)
    if head != "Model":
        census.linear("dense", h, h, c.flag(("classifier_bias", False)))
        census.norm("head_norm", h, bias)
    if head == "MaskedLM" and c.flag(("decoder_bias", True)):
        census.add("decoder", "other", rows)
    _classes(census, h, 1 if head == "MultipleChoice" else _labels(c, head))
    return Architecture("modernbert", tuple(census.tensors), shape)


def vit(c: Config) -> Architecture:
    """Build a vision transformer; its sequence consists of patches and a class token."""
    head, shape, census = c.head, _shape(c, "bert", 0), Census()
    h = shape.hidden
    patches = _patches(census, c, h)
    census.add("cls_token", "other", 1, h)
    census.add("position_embeddings", "embedding", patches + 1, h)
    _layers(census, VIT_NAMES, shape, c.flag(("qkv_bias", True)))
    census.norm("layernorm", h, True)
    if head in ("Model", ""):
        census.linear("pooler", h, c.number("pooler_output_size", default=h), True)
    _classes(census, h, _labels(c, head))
    return Architecture("vit", tuple(census.tensors), shape, groups=(VIT_NAMES[:3],))


def siglip(c: Config) -> Architecture:
    """Build SigLIP's vision tower."""
    shape, census = _shape(c, "bert", 0), Census()
    h = shape.hidden
    census.add("position_embedding", "embedding", _patches(census, c, h), h)
    _layers(census, SIGLIP_NAMES, shape)
    census.norm("post_layernorm", h, True)
    if c.flag(("vision_use_head", True)):
        census.add("probe", "other", 1, h)
        census.add("in_proj", "other", 3 * h + 3, h)
        census.linear("out_proj", h, h, True)
        census.norm("layernorm", h, True)
        census.linear("fc1", h, shape.ffn, True)
        census.linear("fc2", shape.ffn, h, True)
    return Architecture("siglip_vision_model", tuple(census.tensors), shape, groups=(SIGLIP_NAMES[:3],))


CLIP_TEXT = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8, "vocab_size": 49408}
CLIP_TEXT |= {"max_position_embeddings": 77}
CLIP_VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 32}
"""Defaults of CLIP's classes, which its older files omit."""


def clip(c: Config) -> Architecture:
    """Build CLIP: a tower for text and one for images."""
    text, census = _shape(c.section("text_config", CLIP_TEXT), "bert", 0), Census()
    images = clip_vision(c.section("vision_config", CLIP_VISION))
    h, shared = text.hidden, c.number("projection_dim", default=512)
    census.add("token_embedding", "embedding", c.section("text_config", CLIP_TEXT).number("vocab_size"), h)
    census.add("position_embedding", "embedding", text.positions, h)
    _layers(census, SIGLIP_NAMES, text)
    census.norm("final_layer_norm", h, True)
    census.linear("text_projection", h, shared)
    census.linear("visual_projection", images.shape.hidden, shared)
    census.add("logit_scale", "other", 1)
    return Architecture("clip", (*images.tensors, *census.tensors), images.shape, groups=(SIGLIP_NAMES[:3],))


def clip_vision(c: Config) -> Architecture:
    """Build CLIP's vision tower."""
    shape, census = _shape(c, "bert", 0), Census()
    h = shape.hidden
    census.add("class_embedding", "other", h)
    census.add("position_embedding", "embedding", _patches(census, c, h, bias=False) + 1, h)
    census.norm("pre_layrnorm", h, True)
    _layers(census, SIGLIP_NAMES, shape)
    census.norm("post_layernorm", h, True)
    return Architecture("clip_vision_model", tuple(census.tensors), shape, groups=(SIGLIP_NAMES[:3],))


def _patches(census: Census, c: Config, h: int, *, bias: bool = True) -> int:
    """Add the convolution that makes patches. Return their number."""
    side, patch = c.size("image_size", 224), c.size("patch_size", 16)
    census.add("patch_embedding", "other", h, c.number("num_channels", default=3), patch, patch)
    if bias:
        census.add("patch_embedding", "other", h)
    return (side // patch) ** 2


ENCODERS: Mapping[str, Callable[[Config], Architecture]] = {
    "bert": _bert_like("bert"),
    "roberta": _bert_like("roberta"),
    "xlm-roberta": _bert_like("xlm-roberta"),
    "distilbert": _bert_like("distilbert", types=False),
    "deberta": deberta,
    "deberta-v2": deberta,
    "modernbert": modernbert,
    "vit": vit,
    "siglip_vision_model": siglip,
    "clip": clip,
    "clip_vision_model": clip_vision,
}
