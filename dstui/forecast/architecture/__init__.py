"""Derive every tensor of a model from a Hugging Face `config.json`: counts that are exact to the parameter, without torch.

An architecture is an entry of a table (`decoders.py`) or a small function (`encoders.py`, `seq2seq.py`, `composed.py`, `mixtures.py`) that
lists its tensors. An unknown architecture is reported, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dstui.forecast.architecture.audio import AUDIO
from dstui.forecast.architecture.composed import COMPOSED
from dstui.forecast.architecture.config import Config, ModelProblem
from dstui.forecast.architecture.decoders import DECODERS, decoder
from dstui.forecast.architecture.deepseek_v4 import DEEPSEEK_V4
from dstui.forecast.architecture.encoders import ENCODERS
from dstui.forecast.architecture.gemma3n import GEMMA3N
from dstui.forecast.architecture.gemma4 import GEMMA4
from dstui.forecast.architecture.hybrids import HYBRIDS
from dstui.forecast.architecture.mixtures import MIXTURES
from dstui.forecast.architecture.seeing_mixtures import SEEING_MIXTURES
from dstui.forecast.architecture.seq2seq import SEQ2SEQ
from dstui.forecast.architecture.state_spaces import STATE_SPACES
from dstui.forecast.architecture.tensors import Architecture, Tensor, TensorShape

__all__ = ["KNOWN", "NOT_ALL_ATTENTION", "Architecture", "Config", "ModelProblem", "Tensor", "TensorShape", "architecture"]

_OTHERS: dict[str, Callable[[Config], Architecture]] = {
    **{**ENCODERS, **SEQ2SEQ, **COMPOSED, **MIXTURES, **HYBRIDS, **GEMMA3N, **GEMMA4},
    **{**AUDIO, **DEEPSEEK_V4, **SEEING_MIXTURES, **STATE_SPACES},
}
KNOWN: tuple[str, ...] = (*DECODERS, *_OTHERS)
"""Every supported `model_type`."""
NOT_ALL_ATTENTION: tuple[str, ...] = (*HYBRIDS, *STATE_SPACES)
"""Those with layers without attention."""


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Return the tensors and the shape of the model of a `config.json`. Raises ModelProblem."""
    c = Config(config)
    kind = c.text("model_type")
    if kind in DECODERS:
        return decoder(c, kind)
    if kind in _OTHERS:
        return _OTHERS[kind](c)
    if not kind:
        raise ModelProblem(
            "this config.json has no model_type, so it may not be a model's: give model.params: 7.0e9 instead of model.source"
        )
    raise ModelProblem(
        f"the architecture {kind!r} is not known here: give model.params: 7.0e9 (the model's card has the number) instead of model.source"
    )
