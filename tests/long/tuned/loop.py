"""Train with deepspeed.initialize, with the micro-batch of the configuration."""

import json
import os
from pathlib import Path

import deepspeed
import torch

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})  # plain gloo, so that nothing is compiled
torch.manual_seed(0)
config = json.loads(Path(os.environ["DSTUI_DS_CONFIG"]).read_text())
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(192, 192), torch.nn.GELU())]
model = torch.nn.Sequential(*layers)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
while True:
    x = torch.randn(engine.train_micro_batch_size_per_gpu(), 64, 192)
    loss = engine(x).pow(2).mean()
    engine.backward(loss)
    engine.step()
