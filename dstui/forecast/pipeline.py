"""The stages of a pipeline: which layers and embeddings each holds, and which of its ends needs the most.

Megatron gives each stage as many layers. If they do not divide evenly, the embedding and the head count as a layer each
(`--pp-partition-method type:transformer|embedding`). The first stage has the embedding and the activations of as many micro-batches as
there are stages (1F1B: Narayanan et al., arxiv.org/abs/2104.04473, section 2.2); the last has the head, the loss, and one micro-batch.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dstui.forecast.activations import Activations
from dstui.forecast.architecture import TensorShape
from dstui.forecast.model import Counts
from dstui.forecast.setup import Setup


def layers_of(setup: Setup, shape: TensorShape) -> tuple[int, int]:
    """Return the layers of a stage in the middle, and of the first and the last one."""
    stages, layers = setup.pipeline, shape.layers
    if layers % stages and (layers + 2) % stages == 0:
        middle = (layers + 2) // stages
        return middle, max(middle - 1, 1)
    each = math.ceil(layers / stages)
    return each, each


def ends(setup: Setup, shape: TensorShape, n: Counts, a: Activations) -> list[tuple[Counts, Activations]]:
    """Return the parameters and activations of the first and of the last stage, scaled as if all stages were like it."""
    stages = setup.pipeline
    if stages == 1:
        return [(n, a)]
    _, at_end = layers_of(setup, shape)
    flying, share = min(stages, setup.accumulation), at_end / max(shape.layers, 1)
    body = max(n.params - n.head, 0)
    held = stages * (body * share + n.head)
    scale = held / max(n.params, 1)
    mine = replace(n, params=int(n.params * scale), trained=int(n.trained * scale), frozen=int(n.frozen * scale))
    passed_on = (4 if setup.precision == "fp32" else 2) * shape.hidden * setup.tokens
    first = replace(a, kept=a.kept * share * flying + passed_on * flying, loss=0.0, host=a.host * share * flying)
    last = replace(a, kept=a.kept * share, host=a.host * share)
    return [(mine, first), (mine, last)]


def seconds_of(setup: Setup, shape: TensorShape, layers: float, head: float) -> float:
    """Return the seconds of the slowest stage, from those of all layers and of the head with the loss."""
    if setup.pipeline == 1:
        return layers + head
    middle, at_end = layers_of(setup, shape)
    each = layers / max(shape.layers, 1)
    return max(middle * each, at_end * each + head)
