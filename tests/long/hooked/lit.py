"""Train with Lightning's DeepSpeedStrategy: each rank prints its loss; with the argument `bar`, also Lightning's progress bar."""

import json
import os
import sys
from pathlib import Path

import deepspeed
import lightning
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.strategies import DeepSpeedStrategy

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
lightning.seed_everything(0)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        print(f"mine {loss.item()!r}", flush=True)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randn(32, 1))
config = json.loads(Path(os.environ["DSTUI_DS_CONFIG"]).read_text())
del config["gradient_accumulation_steps"]  # Lightning has an argument for it


class OnCpu(DeepSpeedStrategy):
    """Lightning's strategy, without the check that refuses CPU ranks."""

    def setup_environment(self):
        super(DeepSpeedStrategy, self).setup_environment()

    @property
    def root_device(self):
        return torch.device("cpu", 0)


lightning.pytorch.strategies.deepspeed._validate_device_index_selection = lambda _devices: None
strategy = OnCpu(config=config, process_group_backend="gloo")
bars = [TQDMProgressBar(refresh_rate=1)] if "bar" in sys.argv else []
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=strategy,
    max_epochs=1,
    callbacks=bars,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=bool(bars),
)
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=4))
sys.stdout.flush()
os._exit(0)
