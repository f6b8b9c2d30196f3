"""Train with an accelerate loop that takes its micro-batch from the configuration."""

import deepspeed
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
set_seed(0)
micro = accelerator.state.deepspeed_plugin.deepspeed_config["train_micro_batch_size_per_gpu"]
model = torch.nn.Sequential(*(layer for _ in range(6) for layer in (torch.nn.Linear(192, 192), torch.nn.GELU())))
model.config = type("Config", (), {"hidden_size": 192})()
data = torch.utils.data.TensorDataset(torch.randn(20_000, 16, 192))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=micro))
while True:
    for (x,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
