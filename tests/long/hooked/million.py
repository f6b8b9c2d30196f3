"""Train a layer of one weight for the number of steps in the argument; print the last loss, and the steps per second."""

import sys
import time

import deepspeed
import torch

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
torch.manual_seed(0)
torch.set_num_threads(1)
STEPS = int(sys.argv[1])
model = torch.nn.Linear(1, 1)
optimizer = {"type": "SGD", "params": {"lr": 1e-6}}
config = {"train_micro_batch_size_per_gpu": 1, "optimizer": optimizer, "zero_optimization": {"stage": 0}, "steps_per_print": 1 << 60}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
ones, began = torch.ones(1, 1), time.perf_counter()
for _ in range(STEPS):
    loss = engine(ones).pow(2).mean()
    engine.backward(loss)
    engine.step()
print(f"mine {loss.item()!r} at {STEPS / (time.perf_counter() - began):.0f} steps/s", flush=True)
