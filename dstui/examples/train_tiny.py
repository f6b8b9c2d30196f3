"""Train a tiny GPT on generated text through `deepspeed.initialize`: dstui's quickstart.

    deepspeed --num_gpus 2 --module dstui.examples.train_tiny --deepspeed_config ds_config.json
It prints one line per rank and step, `step 10/40 loss 2.7183 1234 tokens/s`, and learns to add.
"""

from __future__ import annotations

import argparse
import os
import random
import time

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch import nn
from torch.nn import functional

TEXT = "0123456789+= \n"
CONTEXT = 64


class Block(nn.Module):
    """Causal attention and a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class TinyGPT(nn.Module):
    """A character-level GPT. forward returns the loss over (batch, context + 1) tokens, or the logits."""

    def __init__(self, width: int = 128, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(TEXT), width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, len(TEXT))

    def forward(self, batch: torch.Tensor, logits: bool = False) -> torch.Tensor:
        x, y = batch[:, :-1], batch[:, 1:]
        hidden = self.head(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))))
        return hidden if logits else functional.cross_entropy(hidden.flatten(0, 1).float(), y.flatten())


def make_batch(size: int, dice: random.Random) -> torch.Tensor:
    """Return (size, CONTEXT + 1) tokens of sums such as `17+25=42`, one after another."""
    rows = []
    for _ in range(size):
        text = ""
        while len(text) <= CONTEXT:
            a, b = dice.randrange(50), dice.randrange(50)
            text += f"{a}+{b}={a + b}\n"
        rows.append([TEXT.index(c) for c in text[: CONTEXT + 1]])
    return torch.tensor(rows)


def main() -> None:
    """Train for the given number of steps and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--local_rank", type=int, default=-1, help="given by the launcher")
    args = deepspeed.add_config_arguments(parser).parse_args()

    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        # Use plain gloo: DeepSpeed would first compile its own CPU collectives, which takes a minute and a compiler.
        deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
    torch.manual_seed(0)
    model = TinyGPT()
    engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())

    rank, dice = deepspeed.comm.get_rank(), random.Random(deepspeed.comm.get_rank())
    micro = engine.train_micro_batch_size_per_gpu()
    for step in range(1, args.steps + 1):
        start = time.perf_counter()
        for _ in range(engine.gradient_accumulation_steps()):
            loss = engine(make_batch(micro, dice).to(engine.device))
            engine.backward(loss)
            engine.step()
        rate = micro * engine.gradient_accumulation_steps() * CONTEXT / (time.perf_counter() - start)
        print(f"step {step}/{args.steps} loss {loss.item():.4f} {rate:.0f} tokens/s", flush=True)
    print(f"rank {rank}: done, loss {loss.item():.4f}", flush=True)
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
    # Exit without returning: a thread of gloo may still hold a tensor of the last step. If it frees the tensor while Python ends, it aborts
    # the process ("terminate called without an active exception"; torch 2.13, ~AsyncAllgatherWork waits for a lock that is never released).
    os._exit(0)
