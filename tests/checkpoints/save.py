"""Train a tiny model for a few steps on two CPU ranks and save a checkpoint: python save.py STAGE FOLDER."""

import sys

import deepspeed
import torch
from torch import nn

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})  # plain gloo, so that nothing is compiled
stage, folder = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
config = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": stage},
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _step in range(3):
    loss = engine(torch.ones(2, 16, dtype=torch.bfloat16)).float().pow(2).mean()
    engine.backward(loss)
    engine.step()
engine.save_checkpoint(folder, client_state={"epoch": 7})
