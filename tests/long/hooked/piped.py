"""Train a pipeline of two stages; both ranks print what train_batch returns."""

import os
import sys

import deepspeed
import torch
from deepspeed.pipe import PipelineModule

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
layers = [torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)]
model = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.MSELoss(), partition_method="uniform")
engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=os.environ["DSTUI_DS_CONFIG"])


def batches():
    dice = torch.Generator().manual_seed(1)
    while True:
        x = torch.randn(4, 8, generator=dice)
        yield x, x.sum(1, keepdim=True)


data = batches()
for _ in range(8):
    print(f"mine {engine.train_batch(data).item()!r}", flush=True)
deepspeed.comm.barrier()
sys.stdout.flush()
os._exit(0)
