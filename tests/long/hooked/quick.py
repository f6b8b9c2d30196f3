"""Train a thousand steps a second, in the way named by the argument: `plain`, `subclass`, `several` engines, a `pipeline`.

The plain one evaluates in between, and ends with an error in a forward.
"""

import sys

import deepspeed
import torch
from deepspeed.pipe import PipelineModule

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
KIND = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 0},
}


class OwnEngine(deepspeed.DeepSpeedEngine):
    """An engine whose step calls the original one."""

    def step(self, *args: object, **kwargs: object) -> None:
        super().step(*args, **kwargs)


def make_engine() -> deepspeed.DeepSpeedEngine:
    model = torch.nn.Linear(8, 8)
    deepspeed.init_distributed()
    if KIND == "subclass":
        judged = deepspeed.DeepSpeedConfig(CONFIG)
        return OwnEngine(args=None, model=model, model_parameters=model.parameters(), config=CONFIG, config_class=judged)
    if KIND == "pipeline":
        model = PipelineModule([model], num_stages=1, loss_fn=lambda out, _: out.pow(2).mean())
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)[0]


def batches(step: int):
    return (torch.ones(1, 8) * (step % 7 + micro) for micro in range(2))


def train(engine: deepspeed.DeepSpeedEngine, step: int) -> float:
    if KIND == "pipeline":
        return engine.train_batch((batch, batch) for batch in batches(step)).item()
    losses = []
    for batch in batches(step):
        loss = engine(batch).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return sum(losses) / 2


engines = [make_engine() for _ in range(2 if KIND == "several" else 1)]
kinds, lines = set(), []
for step in range(1, 2001):
    for number, engine in enumerate(engines, 1):
        lines.append(f"mine {number} {step} {train(engine, step)!r}")
        kinds.add(type(engine))
    if step == 1500 and KIND == "plain":
        engine.eval()
        for _ in range(3):
            engine(torch.ones(1, 8))
        engine.train()
print("\n".join(lines), f"\nclasses {len(kinds)}", flush=True)
if KIND == "plain":
    engine(torch.ones(1, 9))
