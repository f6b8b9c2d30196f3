"""Train with an accelerate loop; each rank prints its loss."""

import deepspeed
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
set_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model.config = type("Config", (), {"hidden_size": 32})()
data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"mine {loss.item()!r}", flush=True)
accelerator.end_training()
