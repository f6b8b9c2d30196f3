"""GLM-4.1V to 4.6V, ERNIE 4.5 VL, PaddleOCR-VL, Kimi K2.5: towers before decoders. Source: transformers 5.23, modeling_*.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dstui.forecast.architecture.composed import language_model
from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.encoders import siglip
from dstui.forecast.architecture.mixtures import GATED, QKV, add_attention, add_ends, add_fused_experts, add_gated, mixture_shape
from dstui.forecast.architecture.tensors import Architecture, Census


def glm4v(c: Config) -> Architecture:
    """Build GLM-4.1V, 4.5V and 4.6V: a vision transformer whose patches are merged by a convolution, and GLM-4 or its mixture."""
    kind, part, vision, census = c.text("model_type"), c.text_config(), c.section("vision_config"), Census()
    moe = "moe" in kind or "moe" in part.text("model_type")
    text = language_model(part.biased_by_default(), "glm4_moe" if moe else "glm4", fixed=True)
    h, depth = vision.number("hidden_size", default=1536), vision.number("depth", default=24, most=10_000)
    side, patch, frames = vision.size("image_size", 336), vision.size("patch_size", 14), vision.size("temporal_patch_size", 2)
    out, wide = vision.number("out_hidden_size", default=4096), vision.number("intermediate_size", default=13696)
    bias, merged = vision.flag(("attention_bias", False)), vision.number("spatial_merge_size", default=2)
    census.add("position_embedding", "embedding", (side // patch) ** 2, h)
    census.add("patch_embed", "other", h, vision.number("in_channels", default=3) * frames * patch * patch + 1)
    census.linear("qkv", h, 3 * h, bias, depth)
    census.linear("proj", h, h, False, depth)
    add_gated(census, h, out, depth)  # the MLPs of the tower are as wide as its result
    census.norm("norm", h, times=2 * depth + 2)
    census.add("downsample", "other", out, h * merged * merged + 1)
    census.linear("merger", out, out)
    census.norm("post_projection_norm", out, True)
    add_gated(census, out, wide, 1)
    return Architecture(kind, (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def ernie_vl(c: Config) -> Architecture:
    """Build ERNIE 4.5 VL: experts of the text and of images in each layer, of which a token uses one kind. Its own files are flat."""
    part = (c.text_config() if c.has("text_config") else c).tied_by_default()
    census, vision, bias = Census(), c.section("vision_config"), part.flag(("use_bias", False))
    widths = part.numbers("moe_intermediate_size") or (1536, 512)
    shared, used = part.number("moe_num_shared_experts", default=2, least=0), part.number("moe_k", default=6)
    shape = mixture_shape(part, widths[0], shared, used)
    hidden, layers, experts = shape.hidden, shape.layers, part.size("moe_num_experts", 64)
    add_ends(census, part, shape)
    census.norm("norm", hidden, times=2 * layers)
    add_attention(census, shape, bias)
    listed = part.texts("mlp_layer_types")
    dense = min(listed.count("dense") if listed else part.size("moe_layer_start_index", 1), layers)
    add_gated(census, hidden, part.number("intermediate_size"), dense, bias)
    sparse = layers - dense
    for width in widths[:2] if sparse else ():
        add_fused_experts(census, experts, hidden, width, sparse)
        census.add("gate", "other", experts, hidden, times=sparse)
        census.add("e_score_correction_bias", "other", experts, times=sparse)
    add_gated(census, hidden, widths[0] * shared, sparse * bool(shared), bias)
    idle = (max(experts - used, 0) * widths[0] + experts * sum(widths[1:2])) * 3 * hidden * sparse
    _ernies_tower(census, vision, hidden)
    return Architecture("ernie4_5_vl_moe", tuple(census.tensors), replace(shape), idle, (QKV, GATED))


def _ernies_tower(census: Census, vision: Config, out: int) -> None:
    h, depth = vision.number("hidden_size", "embed_dim", default=1280), vision.number("depth", default=32, most=10_000)
    patch, width = vision.size("patch_size", 14), vision.number("intermediate_size", default=4 * h)
    census.linear("patch_embed", vision.number("in_channels", "in_chans", default=3) * patch * patch, h)
    census.linear("qkv", h, 3 * h, True, depth)
    census.linear("proj", h, h, True, depth)
    census.linear("fc1", h, width, True, depth)
    census.linear("fc2", width, h, True, depth)
    census.norm("norm", h, True, 2 * depth + 1)
    merged = h * vision.number("spatial_merge_size", default=2) ** 2
    for into in (merged, merged * vision.number("temporal_merge_size", default=2)):  # over space, then over time
        census.linear("fc1", into, merged, True)
        census.linear("fc2", merged, merged, True)
        census.norm("ln", merged, True)
    census.linear("mlp", merged, out, True)
    census.norm("after_norm", out)


def paddleocr_vl(c: Config) -> Architecture:
    """Build PaddleOCR-VL: SigLIP without its head, a projection of patches merged by four, and ERNIE 4.5. Its own files are flat."""
    text = language_model(c.text_config() if c.has("text_config") else c, "ernie4_5", fixed=True)
    vision, census = c.section("vision_config", {"vision_use_head": False}), Census()
    tower = siglip(vision)
    merged = tower.shape.hidden * vision.number("spatial_merge_size", default=2) ** 2
    census.norm("pre_norm", tower.shape.hidden, True)
    census.linear("linear_1", merged, merged, True)
    census.linear("linear_2", merged, text.shape.hidden, True)
    return Architecture("paddleocr_vl", (*text.tensors, *tower.tensors, *census.tensors), text.shape, text.idle, text.groups)


def kimi_k25(c: Config) -> Architecture:
    """Build Kimi K2.5 and later: MoonViT, a projection of patches merged by four, and Kimi K2. Its own files say vt_hidden_size."""
    text, vision, census = language_model(c.text_config(), "deepseek_v3"), c.section("vision_config"), Census()
    h, depth = (
        vision.number("hidden_size", "vt_hidden_size", default=1152),
        vision.number("num_hidden_layers", "vt_num_hidden_layers", default=27, most=10_000),
    )
    width, patch = vision.number("intermediate_size", "vt_intermediate_size", default=4304), vision.size("patch_size", 14)
    rows, columns = (vision.number(f"pos_emb_{side}", f"init_pos_emb_{side}", default=64) for side in ("height", "width"))
    census.add("position_embeddings", "embedding", rows * columns, h)
    census.add("patch_embed", "other", h, 3 * patch * patch + 1)
    for module in ("q_proj", "k_proj", "v_proj", "proj"):
        census.linear(module, h, h, True, depth)
    census.linear("fc1", h, width, True, depth)
    census.linear("fc2", width, h, True, depth)
    census.norm("norm", h, True, 2 * depth + 1)
    merged = h * vision.size("merge_kernel_size", 2) ** 2
    census.norm("pre_norm", c.number("projection_hidden_size", default=h), True)
    census.linear("in_proj", merged, merged, True)
    census.linear("out_proj", merged, text.shape.hidden, True)
    return Architecture("kimi_k25", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


SEEING_MIXTURES: Mapping[str, Callable[[Config], Architecture]] = {
    "glm4v": glm4v,
    "glm46v": glm4v,
    "glm4v_moe": glm4v,
    "ernie4_5_vl_moe": ernie_vl,
    "ernie4_5_moe_vl": ernie_vl,
    "paddleocr_vl": paddleocr_vl,
    "kimi_k25": kimi_k25,
}
