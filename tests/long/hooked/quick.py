"""Train at a thousand steps a second: micro-batches in pairs, an evaluation, and an error in a forward at the end."""

import deepspeed
import torch

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
torch.manual_seed(0)
torch.set_num_threads(1)
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 0},
}
model = torch.nn.Linear(8, 8)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
kinds, lines = set(), []
for step in range(1, 2001):
    losses = []
    for micro in range(2):
        loss = engine(torch.ones(1, 8) * (step % 7 + micro)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    lines.append(f"mine {step} {sum(losses) / 2!r}")
    kinds.add(type(engine))
    if step == 1500:
        engine.eval()
        for _ in range(3):
            engine(torch.ones(1, 8))
        engine.train()
print("\n".join(lines), f"\nclasses {len(kinds)}", flush=True)
engine(torch.ones(1, 9))
