"""Measure the memory traffic of small kernels in a layer of each family; adds it to dstui/forecast/data/activations.json.

    python tests/bench/measure_moves.py [FAMILY…]

Norms, rotary positions, activation functions and residuals of transformers' modules only move bytes: each reads and writes whole tensors,
so a GPU's memory bandwidth limits it. Counts the bytes of the arguments and results of each of torch's operations in bf16, without matrix
products, fused attention and views; like the bytes that are kept, they are sums of the layer's widths.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import measure_activations as kept
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModel

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "linear", "embedding"})
"""Families that are counted by their operations."""
VIEWS = frozenset(
    """view _unsafe_view t transpose permute expand slice select unsqueeze squeeze detach alias split as_strided unbind chunk narrow lift_fresh
    empty empty_like new_empty new_empty_strided _local_scalar_dense""".split()  # noqa: SIM905
)
NOT_MEASURED = ("bloom",)
"""Used for MPT, whose kernels are fused (llm-foundry)."""


class Counter(TorchDispatchMode):
    """Add up the bytes that operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = call(*args, **(kwargs or {}))
        name = call._overloadpacket.__name__
        if name not in PRODUCTS | VIEWS and "scaled_dot_product" not in name:
            self.bytes += sum(x.numel() * x.element_size() for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor))
        return out


def moved(family: str, size: kept.Size, layers: int, attention: str) -> tuple[float, float]:
    """Return the bytes per token of the forward and of the backward pass."""
    torch.manual_seed(0)
    model = AutoModel.from_config(kept.config_of(family, size, layers, attention), dtype=torch.bfloat16)
    model = model.encoder if family in ("t5", "bart") else model
    model.train()
    inputs = torch.randn(1, kept.TOKENS, size[0], dtype=torch.bfloat16, requires_grad=True)
    inputs.grad = torch.zeros_like(inputs)
    with Counter() as forward:
        out = model(inputs_embeds=inputs).last_hidden_state
    with Counter() as backward:
        out.backward(out.detach())
    return forward.bytes / kept.TOKENS, backward.bytes / kept.TOKENS


def of_layer(family: str, size: kept.Size, attention: str) -> tuple[float, float]:
    """Return the bytes per token of one layer."""
    two, four = (moved(family, size, layers, attention) for layers in (2, 4))
    return (four[0] - two[0]) / 2, (four[1] - two[1]) / 2


def moves_of(family: str) -> dict[str, list[float]]:
    """Return all measurements of a family."""
    fused = "eager" if family in kept.EAGER_ONLY else "sdpa"
    pairs = [of_layer(family, size, fused) for size in kept.SIZES]
    found = {name: kept.fitted(family, [pair[way] for pair in pairs]) for way, name in enumerate(("forward", "backward"))}
    if fused != "eager":
        size = kept.SIZES[3]
        eager = of_layer(family, size, "eager")
        found["eager_moves"] = [round((eager[way] - pairs[3][way]) / (size[1] * kept.TOKENS), 2) for way in (0, 1)]
    return found


def main() -> None:
    torch.set_num_threads(1)
    data = json.loads(kept.OUT.read_text())
    for family in sys.argv[1:] or sorted(set(data["families"]) - set(NOT_MEASURED)):
        data["families"][family] |= moves_of(family)
    kept.OUT.write_text(re.sub(r"\[\s+([^]]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", json.dumps(data, indent=1)) + "\n")


if __name__ == "__main__":
    main()
