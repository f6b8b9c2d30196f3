"""What the batch needs: activations and the loss, in bytes on one rank.

The bytes that a layer keeps for its backward pass, and that its recomputation needs, were measured for each family on transformers'
own modules (`data/activations.json`, written by tests/bench/measure_activations.py); they are sums of the layer's widths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dstui.forecast.architecture import TensorShape
from dstui.forecast.setup import Setup

DATA = Path(__file__).parent / "data" / "activations.json"
NARROW_LOSS_BYTES = 6.0
"""The same where the logits are not widened to 32 bits (BERT and its like, T5, BART)."""
GATED = frozenset({"llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "mixtral", "qwen2_moe", "qwen3_moe"})
NARROW_LOSS = frozenset({"bert", "bart", "t5"})
FUSED_LOSS_BYTES = 4.0
"""Bytes for each token and hidden element of a fused loss: the gradient of its input, and a chunk of logits of about that size."""
FUSED_NORMS, FUSED_MLP = 8.0, 2.0
"""Bytes for each hidden element and each element of a gated MLP that such kernels (Liger) leave out in a layer that is recomputed. Where
layers are kept they saved half of that (99 to 80 GiB for 8B at stage 2 and 8k tokens, stas00/ml-engineering), so it is not counted on."""
MOVES = 5.6
"""How often the kernels of a layer move a byte that it keeps, in both passes: those of MPT in llm-foundry, whose norms are fused."""
FUSED_MOVES = 3.0
"""The same where a compiler or Liger fuses all that can be: it is written once, read once, and its gradient is written."""
SELECTIVE = 0.6
"""Of what layers keep, what is left where only activation functions, norms and attention are recomputed."""
TILES = 8
"""Parts of the sequence over which a tiled MLP runs."""
LAST_NORM = 5.0
"""Elements for each hidden one that the last norm and the input of the head hold while the loss is taken."""


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes on one rank. The peak of the backward pass is `kept` and the larger of `work` and `loss`."""

    kept: float
    """What the forward pass keeps: of every layer its input with checkpointing, else all that its backward pass needs."""
    work: float
    """What the backward pass of one layer needs more, its recomputation included."""
    loss: float
    """What the logits and the loss need at once."""
    host: float = 0.0
    """What waits in RAM meanwhile."""

    @property
    def peak(self) -> float:
        """The most at once."""
        return self.kept + max(self.work, self.loss)


@cache
def _families() -> Mapping[str, Mapping[str, Sequence[float]]]:
    families: Mapping[str, Mapping[str, Sequence[float]]] = json.loads(DATA.read_bytes())["families"]
    return families


def activations(setup: Setup, shape: TensorShape, *, frozen: bool = False, adapted: float = 0.0) -> Activations:
    """Return the activations of one micro-batch.

    `frozen`: the linear layers are not trained; `adapted`: elements per token and layer that LoRA keeps in addition.
    """
    tokens, wide = setup.tokens, setup.precision == "fp32"
    length = (
        setup.sequence if not setup.attention.startswith("flash") else 0
    )  # ALiBi's bias and soft caps are matrices only outside of the kernel
    element = 4 if wide else 2
    split = setup.tensor_parallel
    if not setup.training:
        work = (4 * shape.hidden + 2 * shape.ffn) * element * tokens / split
        return Activations(0.0, work, element * tokens * shape.vocabulary)
    family = _families().get(shape.family) or _families()["llama"]
    kind = "_frozen" if frozen else "_fp32" if wide else ""
    scale = 2 if wide and frozen else 1
    keep = _of_layer(family[f"keep{kind}"], shape, length) * scale + adapted * element
    work = max(_of_layer(family[f"work{kind}"], shape, length) * scale + adapted * element, keep)
    if setup.attention == "eager" and "eager" in family:
        matrix = shape.heads * setup.sequence * (2 if wide else 1)
        keep, work = keep + family["eager"][0] * matrix, work + family["eager"][1] * matrix
    if setup.fused_loss and shape.family in GATED:
        work -= (FUSED_NORMS * shape.hidden + FUSED_MLP * shape.ffn) * element / 2
    loss = _loss(setup, shape, tokens) + LAST_NORM * element * shape.hidden * tokens
    if setup.tiled_mlp:
        tiled = (1 - 1 / TILES) * family[f"work{kind}"][2] * shape.ffn * scale
        work = max(work - tiled, work / 4)
    if setup.checkpointing and setup.selective:
        return Activations(SELECTIVE * keep * shape.layers * tokens / split, max(work - SELECTIVE * keep, 0) * tokens / split, loss)
    if setup.checkpointing:
        inputs = element * shape.hidden * tokens
        if setup.activation_offload:
            return Activations(2 * inputs, work * tokens / split, loss, host=inputs * shape.layers)
        return Activations(inputs * shape.layers, work * tokens / split, loss)
    return Activations(keep * shape.layers * tokens / split, max(work - keep, 0) * tokens / split, loss)


def moved_in_layers(setup: Setup, shape: TensorShape, again: float) -> float:
    """Return the bytes per token that the small kernels of all layers move; `again`: the share of the forward pass that runs twice."""
    family = _families().get(shape.family) or _families()["llama"]
    length = setup.sequence if setup.attention == "eager" else 0
    fused = setup.compiled or (setup.fused_loss and shape.family in GATED)
    if fused or "forward" not in family:
        moves = FUSED_MOVES if fused else MOVES
        forward, backward = (_of_layer(family["keep"], shape, length) * part for part in (moves / 3, moves * 2 / 3))
    else:
        forward, backward = (_of_layer(family[way], shape, length) for way in ("forward", "backward"))
    matrix = shape.heads * length
    forward, backward = (size + more * matrix for size, more in zip((forward, backward), family.get("eager_moves", (0, 0)), strict=True))
    return (forward * (1 + again) + backward) * shape.layers * (2 if setup.precision == "fp32" else 1)


def loss_moves(setup: Setup, shape: TensorShape) -> float:
    """Return the bytes per token that the loss needs."""
    return _loss(setup, shape, 1)


def _of_layer(coefficients: Sequence[float], shape: TensorShape, length: int) -> float:
    """Return bytes per token of a layer: as measured with equal numbers of key and query heads, less what grouped keys save."""
    of_hidden, of_attention, of_mlp, of_experts, of_matrix = coefficients
    attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    saved = (of_attention / 2 if of_attention else 4) * (attention - keys)
    experts = of_experts * shape.hidden * shape.experts
    if not of_mlp:
        return of_hidden * shape.hidden - saved + of_matrix * shape.heads * length
    return of_hidden * shape.hidden + of_attention * attention - saved + of_mlp * shape.ffn + experts + of_matrix * shape.heads * length


def _loss(setup: Setup, shape: TensorShape, tokens: int) -> float:
    if setup.fused_loss:
        return FUSED_LOSS_BYTES * shape.hidden * tokens
    narrow = shape.family in NARROW_LOSS and setup.precision != "fp32"
    return (NARROW_LOSS_BYTES if narrow else setup.loss_bytes) * shape.vocabulary * tokens
