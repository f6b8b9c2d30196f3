"""Train differently from the Plan, as the first argument says: `plain` torch, an `other` configuration, another `batch`."""

import json
import os
import sys
import time
from pathlib import Path

import deepspeed
import torch

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
kind, path = sys.argv[-2:]
model = torch.nn.Linear(8, 8)
if kind == "plain":
    deepspeed.init_distributed()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
else:
    config = json.loads(Path(path).read_text())
    if kind == "batch":
        config["train_micro_batch_size_per_gpu"] = 8
    else:
        config = f"mine_{os.environ['RANK']}.json"
        Path(config).write_text('{"train_batch_size": 2, "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": true}}}')
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(200):
    loss = (model if kind == "plain" else engine)(torch.ones(2, 8)).pow(2).mean()
    if kind == "plain":
        loss.backward()
        optimizer.step()
    else:
        engine.backward(loss)
        engine.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    time.sleep(0.1)
