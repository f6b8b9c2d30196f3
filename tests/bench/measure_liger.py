"""Measure what a layer of LLaMA needs in the backward pass with Liger's kernels and with DeepSpeed's TiledMLP.

    python tests/bench/measure_liger.py

Liger's kernels need a GPU, so that its norm and MLP are written here as it does: a few rows at a time, the gradient in place of what came
in. Its rotation in place changes no peak. Printed are bytes per token and hidden element with the ratios of LLaMA 8B, everything trained and
with frozen weights (LoRA), for as many heads of keys as of queries and for a fourth of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import measure_activations as bench
import torch
from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledMLP
from torch.nn.functional import silu
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

SIZE = (256, 4, 64, 896)
ROWS, TOKENS_OF_TILE = 16, 32


def rows(*tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Yield a few rows of each at a time, as views."""
    flat = [one.view(-1, one.shape[-1]) for one in tensors]
    for start in range(0, len(flat[0]), ROWS):
        yield [one[start : start + ROWS] for one in flat]


class Norm(torch.autograd.Function):
    """Keeps its input and a number of each row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        out, scale = torch.empty_like(x), torch.empty(*x.shape[:-1], 1)
        for some, into, kept in rows(x, out, scale):
            kept.copy_(torch.rsqrt(some.float().pow(2).mean(-1, keepdim=True) + eps))
            into.copy_((some.float() * kept) * weight.float())
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        of_weight = torch.zeros(weight.shape)
        for some, kept, change in rows(x, scale, grad := grad.contiguous()):
            normal, scaled = some.float() * kept, change.float() * weight.float()
            of_weight += (change.float() * normal).sum(0)
            change.copy_(kept * (scaled - normal * (scaled * normal).mean(-1, keepdim=True)))
        return grad, of_weight.to(weight.dtype), None


class Gate(torch.autograd.Function):
    """Keeps its two inputs, which become their gradients."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(gate)
        for one, other, into in rows(gate, up, out):
            into.copy_(silu(one.float()) * other.float())
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = (one.detach() for one in ctx.saved_tensors)
        for one, other, change in rows(gate, up, grad.contiguous()):
            steep = torch.sigmoid(one.float())
            of_gate = change.float() * other.float() * (steep + one.float() * steep * (1 - steep))
            other.copy_(change.float() * one.float() * steep)
            one.copy_(of_gate)
        return gate, up


PLAIN_MLP, PLAIN_NORM = LlamaMLP.forward, LlamaRMSNorm.forward
Forward = Callable[..., torch.Tensor]


def norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Norm.apply(x, self.weight, self.variance_epsilon)


def mlp(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.down_proj(Gate.apply(self.gate_proj(x), self.up_proj(x)))


def tiled(self: Any, x: torch.Tensor) -> torch.Tensor:
    weights = [self.down_proj.weight, self.gate_proj.weight, self.up_proj.weight]
    return TiledMLP.apply(PLAIN_MLP, self, x, x.shape[-2] // TOKENS_OF_TILE, weights)


WAYS: dict[str, tuple[Forward, Forward]] = {
    "plain": (PLAIN_MLP, PLAIN_NORM),
    "norms": (PLAIN_MLP, norm),
    "MLP": (mlp, PLAIN_NORM),
    "both": (mlp, norm),
    "tiles": (tiled, PLAIN_NORM),
    "tiles and norms": (tiled, norm),
}


def main() -> None:
    torch.set_num_threads(1)  # the CPU's attention has buffers for each thread
    made = bench.config_of
    bench.TOKENS = 32 * TOKENS_OF_TILE
    for shared in (1, 4):

        def config_of(family: str, size: bench.Size, layers: int, attention: str) -> Any:
            config = made(family, size, layers, attention)
            config.num_key_value_heads = size[1] // shared  # noqa: B023
            return config

        bench.config_of = config_of
        for name, (LlamaMLP.forward, LlamaRMSNorm.forward) in WAYS.items():
            found = [bench.measured("llama", SIZE, 2, checkpointing=True, frozen=frozen)[1] / SIZE[0] for frozen in (False, True)]
            print(f"{SIZE[1] // shared} heads of keys, {name:<16} {found[0]:5.1f} h trained {found[1]:5.1f} h frozen", flush=True)


if __name__ == "__main__":
    main()
