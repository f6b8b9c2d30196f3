"""Models with several parts: a vision tower before a decoder. Sources: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.config import Config, ModelProblem
from dstui.forecast.architecture.decoders import DECODERS, decoder, decoder_tensors
from dstui.forecast.architecture.encoders import clip_vision, siglip
from dstui.forecast.architecture.mixtures import MIXTURES, llama4_text
from dstui.forecast.architecture.tensors import Architecture, Census


def language_model(part: Config, default: str, *, fixed: bool = False) -> Architecture:
    """Build the decoder of a model with several parts. `fixed`: its own files name it otherwise. Raises ModelProblem."""
    kind = default if fixed else part.text("model_type") or default
    if kind in DECODERS:
        return decoder(part, kind)
    if kind in MIXTURES:
        return MIXTURES[kind](part.named(kind))
    raise ModelProblem(f"the language model {kind!r} of this model is not known here: give model.params: 7.0e9")


GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "tie_word_embeddings": True}
"""Defaults of gemma3's class, which its own files omit from text_config."""


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
"""Defaults of the sections that LLaVA's own files omit."""
TOWERS = {"clip_vision_model": clip_vision, "siglip_vision_model": siglip}


def llava(c: Config) -> Architecture:
    """Build LLaVA and LLaVA-NeXT: a vision tower, a projection of two layers, and a decoder."""
    part = c.section("text_config", LLAMA).language_part()
    text, vision = language_model(part, "llama"), c.section("vision_config", CLIP_LARGE)
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
    text, census = decoder(c.language_part(), "qwen2"), Census()
    qwen_tower(census, c.section("vision_config"), text.shape.hidden, old=c.text("model_type") == "qwen2_vl")
    return Architecture(c.text("model_type"), (*text.tensors, *census.tensors), text.shape, groups=text.groups)


def qwen_tower(census: Census, vision: Config, hidden: int, *, old: bool) -> None:
    """Add the vision transformer of Qwen2-VL (`old`), or of Qwen2.5-VL."""
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
    census.linear("merger", merged, vision.number("hidden_size" if old else "out_hidden_size", default=hidden), True)


def qwen3_vl(c: Config) -> Architecture:
    """Build Qwen3-VL: a vision transformer whose patches are merged by four after several layers, and Qwen3."""
    kind = c.text("model_type")
    text, vision, census = decoder(c.text_config(), "qwen3_moe" if "moe" in kind else "qwen3"), c.section("vision_config"), Census()
    qwen3_tower(census, vision, text.shape.hidden, 3)
    return Architecture(kind, (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def qwen3_tower(census: Census, vision: Config, hidden: int, mergers: int) -> None:
    """Add the vision transformer of Qwen3-VL and Qwen3.5. `mergers`: the number of mergers besides the last, unless the file lists them."""
    h, depth, patch = (
        vision.number("hidden_size", default=1152),
        vision.number("depth", default=27, most=10_000),
        vision.size("patch_size", 16),
    )
    frames, width = vision.size("temporal_patch_size", 2), vision.number("intermediate_size", default=4304)
    census.add("patch_embed", "other", h, vision.number("in_channels", default=3), frames, patch, patch)
    census.add("patch_embed", "other", h)
    census.add("pos_embed", "embedding", vision.number("num_position_embeddings", default=2304), h)
    census.linear("qkv", h, 3 * h, True, depth)
    census.linear("proj", h, h, True, depth)
    census.linear("linear_fc1", h, width, True, depth)
    census.linear("linear_fc2", width, h, True, depth)
    census.norm("norm", h, True, 2 * depth)
    merged, out = h * vision.number("spatial_merge_size", default=2) ** 2, vision.number("out_hidden_size", default=hidden)
    deep = len(vision.numbers("deepstack_visual_indexes")) if "deepstack_visual_indexes" in vision else mergers
    census.norm("merger_norm", h, True)
    census.linear("merger", merged, merged, True, deep + 1)
    census.linear("merger", merged, out, True, deep + 1)
    if deep:
        census.norm("merger_norm", merged, True, deep)


def mistral3(c: Config) -> Architecture:
    """Build Mistral Small 3.1 and later: Pixtral's vision tower, a merger of patches by four, and Mistral."""
    part, vision, census = c.text_config(), c.section("vision_config"), Census()
    text = language_model(part, "mistral")
    h, layers = vision.number("hidden_size", default=1024), vision.number("num_hidden_layers", default=24, most=10_000)
    width, patch = vision.number("intermediate_size", default=4096), vision.size("patch_size", 16)
    census.add("patch_conv", "other", h, vision.number("num_channels", default=3), patch, patch)
    for module in ("q_proj", "k_proj", "v_proj", "o_proj"):
        census.linear(module, h, h, times=layers)
    for module in ("gate_proj", "up_proj"):
        census.linear(module, h, width, times=layers)
    census.linear("down_proj", width, h, times=layers)
    census.norm("norm", h, times=2 * layers + 2)
    bias, features = c.flag(("multimodal_projector_bias", False)), max(len(c.numbers("vision_feature_layer")), 1)
    census.linear("merging_layer", h * c.number("spatial_merge_size", default=2) ** 2, h)
    census.linear("linear_1", h * features, text.shape.hidden, bias)
    census.linear("linear_2", text.shape.hidden, text.shape.hidden, bias)
    return Architecture("mistral3", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def idefics3(c: Config) -> Architecture:
    """Build Idefics3 and SmolVLM: SigLIP without its head, a projection of merged patches, and LLaMA."""
    part = c.text_config()
    text = language_model(part, "llama")
    tower, census = siglip(c.section("vision_config", {"vision_use_head": False})), Census()
    census.linear("proj", tower.shape.hidden * c.number("scale_factor", default=2) ** 2, text.shape.hidden)
    return Architecture(c.text("model_type"), (*text.tensors, *tower.tensors, *census.tensors), text.shape, groups=text.groups)


def internvl(c: Config) -> Architecture:
    """Build InternVL: InternViT, a projection of patches merged by four, and a decoder. Its own files name the parts otherwise."""
    own = c.text("model_type") == "internvl_chat"
    part, vision, census = c.section("llm_config") if own else c.text_config(), c.section("vision_config"), Census()
    text = language_model(part.named("llama") if part.text("model_type") == "internlm2" else part, "qwen2")
    h, layers = vision.number("hidden_size", default=1024), vision.number("num_hidden_layers", default=24, most=10_000)
    bias = vision.flag(("qkv_bias", True)) if own else vision.flag(("attention_bias", False))
    side, patch, width = vision.size("image_size", 448), vision.size("patch_size", 14), vision.number("intermediate_size", default=4096)
    census.add("patch_embedding", "other", h, vision.number("num_channels", default=3), patch, patch)
    census.add("embeddings", "other", 2, h)  # of the class, and the bias of the patches
    census.add("position_embeddings", "embedding", (side // patch) ** 2 + 1, h)
    for module in ("q_proj", "k_proj", "v_proj"):
        census.linear(module, h, h, bias, layers)
    census.linear("projection_layer", h, h, True, layers)
    census.linear("fc1", h, width, True, layers)
    census.linear("fc2", width, h, True, layers)
    census.norm("norm", h, vision.text("norm_type") != "rms_norm", 2 * layers)
    if vision.flag(("qk_normalization" if own else "use_qk_norm", False)):
        census.norm("qk_norm", h, times=2 * layers)
    census.add("layer_scale", "other", h, times=2 * layers)
    census.norm("layer_norm", 4 * h, True)
    census.linear("linear_1", 4 * h, text.shape.hidden, True)
    census.linear("linear_2", text.shape.hidden, text.shape.hidden, True)
    return Architecture(c.text("model_type"), (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def llama4(c: Config) -> Architecture:
    """Build Llama 4: a vision tower whose patches are merged by four, and its mixture of experts."""
    text, vision, census = llama4_text(c.section("text_config")), c.section("vision_config"), Census()
    h, layers = vision.number("hidden_size", default=768), vision.number("num_hidden_layers", default=34, most=10_000)
    side, patch, width = vision.size("image_size", 448), vision.size("patch_size", 14), vision.number("intermediate_size", default=5632)
    census.add("class_embedding", "other", h)
    census.add("positional_embedding_vlm", "embedding", (side // patch) ** 2 + 1, h)
    census.add("patch_embedding", "other", h, vision.number("num_channels", default=3) * patch * patch)
    for module in ("q_proj", "k_proj", "v_proj", "o_proj"):
        census.linear(module, h, h, True, layers)
    census.linear("fc1", h, width, True, layers)
    census.linear("fc2", width, h, True, layers)
    census.norm("norm", h, True, 2 * layers + 2)
    inner, out = vision.number("projector_input_dim", default=4096), vision.number("projector_output_dim", default=4096)
    census.linear("fc1", width, inner)
    census.linear("fc2", out, out)
    census.linear("linear_1", vision.number("vision_output_dim", default=7680), text.shape.hidden)
    return Architecture("llama4", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def mllama(c: Config) -> Architecture:
    """Build Llama 3.2 Vision: a tower over tiles of an image, and LLaMA with layers that attend to it."""
    vision, part = c.section("vision_config"), c.section("text_config")
    census, shape = decoder_tensors(part, "mllama_text_model")
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    across = len(part.numbers("cross_attention_layers"))
    for module, width in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        census.linear(module, hidden, width, times=shape.layers)
    census.linear("o_proj", queries, hidden, times=shape.layers)
    census.add("embed_tokens", "other", 8, hidden)  # tokens for images, which the head does not produce
    census.norm("q_norm", shape.head_dim, times=across)
    census.norm("k_norm", shape.head_dim, times=across)
    census.add("cross_attn_gates", "other", 2, times=across)
    census.linear("multi_modal_projector", vision.number("vision_output_dim", default=7680), hidden, True)
    _tiled_tower(census, vision)
    return Architecture("mllama", tuple(census.tensors), shape, groups=(("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")))


def _tiled_tower(census: Census, c: Config) -> None:
    h, layers = c.number("hidden_size", default=1280), c.number("num_hidden_layers", default=32, most=10_000)
    above, width = c.number("num_global_layers", default=8, most=10_000), c.number("intermediate_size", default=5120)
    patch, tiles, ratios = c.size("patch_size", 14), c.number("max_num_tiles", default=4), c.length("supported_aspect_ratios", 8)
    places = (c.size("image_size", 448) // patch) ** 2 + 1
    census.add("class_embedding", "other", h)
    census.add("patch_embedding", "other", h, c.number("num_channels", default=3), patch, patch)
    census.add("positions", "embedding", places, h)
    census.add("tile_embedding", "embedding", ratios + 1, tiles * places * h)
    census.add("tile_positional_embedding", "embedding", ratios + 1, tiles * h, times=2)
    census.add("gates", "other", 3 + 2 * above)
    for module in ("q_proj", "k_proj", "v_proj", "o_proj"):
        census.linear(module, h, h, times=layers + above)
    census.linear("fc1", h, width, True, layers + above)
    census.linear("fc2", width, h, True, layers + above)
    census.norm("norm", h, True, 2 * (layers + above) + 2)


COMPOSED: Mapping[str, Callable[[Config], Architecture]] = {
    "gemma3": gemma3,
    "llava": llava,
    "llava_next": llava,
    "idefics3": idefics3,
    "smolvlm": idefics3,
    "internvl": internvl,
    "internvl_chat": internvl,
    "llama4": llama4,
    "mistral3": mistral3,
    "mllama": mllama,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "qwen2_vl": qwen_vl,
    "qwen2_5_vl": qwen_vl,
}
