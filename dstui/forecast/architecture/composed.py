"""Models made of several: a vision tower before a decoder. Sources: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.config import Config, ModelProblem
from dstui.forecast.architecture.decoders import DECODERS, decoder
from dstui.forecast.architecture.encoders import clip_vision, siglip
from dstui.forecast.architecture.tensors import Architecture, Census

GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "tie_word_embeddings": True}
"""What gemma3's own files leave out of text_config: the defaults of its class."""


def gemma3(c: Config) -> Architecture:
    """Build Gemma 3 from 4B: SigLIP, a projection, and its decoder."""
    text, tower = decoder(c.section("text_config", GEMMA3), "gemma3_text"), siglip(c.section("vision_config"))
    census = Census()
    census.add("mm_input_projection", "other", tower.shape.hidden, text.shape.hidden)
    census.norm("mm_soft_emb_norm", tower.shape.hidden)
    return Architecture("gemma3", (*text.tensors, *tower.tensors, *census.tensors), text.shape, groups=text.groups)


CLIP_LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
CLIP_LARGE |= {"image_size": 336, "patch_size": 14}
LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}
"""What LLaVA's own files leave out of their sections."""
TOWERS = {"clip_vision_model": clip_vision, "siglip_vision_model": siglip}


def llava(c: Config) -> Architecture:
    """Build LLaVA and LLaVA-NeXT: a vision tower, a projection of two layers, and a decoder."""
    part = c.section("text_config", LLAMA).language_part()
    kind = part.text("model_type") or "llama"
    if kind not in DECODERS:
        raise ModelProblem(f"the language model {kind!r} of this model is not known here: give model.params: 7.0e9")
    text, vision = decoder(part, kind), c.section("vision_config", CLIP_LARGE)
    of_tower = vision.text("model_type") or "clip_vision_model"
    if of_tower not in TOWERS:
        raise ModelProblem(f"the vision tower {of_tower!r} of this model is not known here: give model.params: 7.0e9")
    tower, census, bias = TOWERS[of_tower](vision), Census(), c.flag(("multimodal_projector_bias", True))
    features = max(len(c.numbers("vision_feature_layer")), 1)
    census.linear("linear_1", tower.shape.hidden * features, text.shape.hidden, bias)
    census.linear("linear_2", text.shape.hidden, text.shape.hidden, bias)
    if c.text("model_type") == "llava_next":
        census.add("image_newline", "other", text.shape.hidden)
    return Architecture(c.text("model_type"), (*text.tensors, *tower.tensors, *census.tensors), text.shape, groups=text.groups)


def qwen_vl(c: Config) -> Architecture:
    """Build Qwen2-VL and Qwen2.5-VL: a vision transformer whose patches are merged by four, and Qwen2."""
    text, vision, census = decoder(c.language_part(), "qwen2"), c.section("vision_config"), Census()
    old = c.text("model_type") == "qwen2_vl"
    h, depth = vision.number("embed_dim" if old else "hidden_size", default=1280), vision.number("depth", default=32, most=10_000)
    patch, frames = vision.size("patch_size", 14), vision.size("temporal_patch_size", 2)
    census.add("patch_embed", "other", h, vision.number("in_channels", "in_chans", default=3), frames, patch, patch)
    census.linear("qkv", h, 3 * h, True, depth)
    census.linear("proj", h, h, True, depth)
    census.norm("norm", h, old, 2 * depth)
    width = h * vision.number("mlp_ratio", default=4) if old else vision.number("intermediate_size", default=3420)
    for module in ("fc1",) if old else ("gate_proj", "up_proj"):
        census.linear(module, h, width, True, depth)
    census.linear("fc2" if old else "down_proj", width, h, True, depth)
    merged = h * vision.number("spatial_merge_size", default=2) ** 2
    census.norm("ln_q", h, old)
    census.linear("merger", merged, merged, True)
    census.linear("merger", merged, vision.number("hidden_size" if old else "out_hidden_size", default=text.shape.hidden), True)
    return Architecture(c.text("model_type"), (*text.tensors, *census.tensors), text.shape, groups=text.groups)


COMPOSED: Mapping[str, Callable[[Config], Architecture]] = {
    "gemma3": gemma3,
    "llava": llava,
    "llava_next": llava,
    "qwen2_vl": qwen_vl,
    "qwen2_5_vl": qwen_vl,
}
