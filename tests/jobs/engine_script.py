"""Train a small layer through deepspeed.initialize with a configuration of its own, and call everything that an engine offers."""

import os
import sys
from pathlib import Path

import deepspeed
import torch

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})  # plain gloo, so that nothing is compiled
torch.manual_seed(0)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).pow(2).mean()


CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}
model = Layer()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
rank = deepspeed.comm.get_rank()
for step in range(1, 7):
    losses = []
    for _ in range(2):
        loss = engine(torch.ones(2, 8) * step + rank)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    print(f"mine {sum(losses) / 2!r}", flush=True)
    if step == 3:
        engine.eval()
        engine(torch.ones(2, 8))
        engine.train()
        engine.save_checkpoint(sys.argv[1], tag="third")
if rank == 1:
    engine(torch.ones(2, 9))  # raises in forward
Path(sys.argv[1], "rank_0_goes").exists()
deepspeed.comm.barrier()
os._exit(0)
