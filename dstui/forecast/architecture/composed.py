"""Models made of several: a vision tower before a decoder. Sources: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.decoders import decoder
from dstui.forecast.architecture.encoders import siglip
from dstui.forecast.architecture.tensors import Architecture, Census

GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "tie_word_embeddings": True}
"""What gemma3's own files leave out of text_config: the defaults of its class."""


def gemma3(c: Config) -> Architecture:
    """Gemma 3 from 4B: SigLIP, a projection, and its decoder."""
    text, tower = decoder(c.section("text_config", GEMMA3), "gemma3_text"), siglip(c.section("vision_config"))
    census = Census()
    census.add("mm_input_projection", "other", tower.shape.hidden, text.shape.hidden)
    census.norm("mm_soft_emb_norm", tower.shape.hidden)
    return Architecture("gemma3", (*text.tensors, *tower.tensors, *census.tensors), text.shape, groups=text.groups)


COMPOSED: Mapping[str, Callable[[Config], Architecture]] = {"gemma3": gemma3}
