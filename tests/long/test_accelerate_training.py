"""An accelerate YAML trains from dstui as under `accelerate launch`: same configuration in DeepSpeed, same losses."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import releases

SCRIPT = """
import argparse, json
import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim, DummyScheduler, InitProcessGroupKwargs, set_seed
from torch import nn
import deepspeed

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
parser = argparse.ArgumentParser()  # a strict one: --local_rank would end it
parser.add_argument("--name")
parser.add_argument("--mixed_precision")
args = parser.parse_args()
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
set_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
model.config = type("Config", (), {"hidden_size": 32})()
config = accelerator.state.deepspeed_plugin.deepspeed_config
data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randn(32, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
optimizer = (DummyOptim if "optimizer" in config else torch.optim.AdamW)(model.parameters(), lr=1e-2)
scheduler = (
    DummyScheduler(optimizer, total_num_steps=100, warmup_num_steps=10)
    if "scheduler" in config
    else torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses = []
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(next(model.parameters()).dtype)).float(), y.float())
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    losses.append(round(loss.item(), 5))
if accelerator.is_main_process:
    said = {"ranks": accelerator.num_processes, "losses": losses, "precision": accelerator.mixed_precision, "name": args.name}
    print("TOLD", json.dumps({**said, "config": accelerator.state.deepspeed_plugin.deepspeed_config}, default=str, sort_keys=True), flush=True)
"""
TOP = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 2\nmachine_rank: 0\nmain_process_port: 0\n"
AUTO = {
    "bf16": {"enabled": "auto"},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {
        "stage": "auto",
        "stage3_gather_16bit_weights_on_model_save": "auto",
        "offload_optimizer": {"device": "auto"},
        "offload_param": {"device": "auto"},
    },
}
WITH_OPTIMIZER = {
    "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"), "auto"),
    },
}
PLUGIN = "deepspeed_config:\n  zero_stage: {}\n  gradient_accumulation_steps: 2\n  gradient_clipping: 0.5\n  zero3_init_flag: {}\n"
NAMED = "deepspeed_config: {deepspeed_config_file: ds.json, zero3_init_flag: false}\n"
FLAGS = "--mixed_precision=bf16 --zero_stage=3 --gradient_accumulation_steps=2 --gradient_clipping=0.7 --zero3_save_16bit_model=true"
CASES: dict[str, tuple[str, dict[str, Any] | None, str]] = {
    "plugin, ZeRO-2": (TOP + "mixed_precision: bf16\n" + PLUGIN.format(2, "false"), None, ""),
    "plugin, ZeRO-3, 32 bit": (TOP + "mixed_precision: 'no'\n" + PLUGIN.format(3, "true"), None, ""),
    "a file of its own": (TOP + NAMED, WITH_OPTIMIZER, ""),
    "all auto, with flags": (TOP + NAMED, AUTO, FLAGS),
}


def ran(words: list[str], folder: Path) -> dict[str, Any]:
    """Return what the training script of a launch has reported."""
    path = f"{releases.accelerate()}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": path, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    told = next((line.partition("TOLD ")[2] for line in done.stdout.splitlines() if "TOLD " in line), "")
    assert done.returncode == 0 and told, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(told)
    return found


@pytest.mark.parametrize("case", CASES)
def test_yaml_trains_as_under_accelerate_launch(case: str, tmp_path: Path) -> None:
    text, config, flags = CASES[case]
    (tmp_path / "acc.yaml").write_text(text)
    (tmp_path / "train.py").write_text(SCRIPT)
    if config is not None:
        (tmp_path / "ds.json").write_text(json.dumps(config))
    args = ["train.py", "--name", "a b", "--mixed_precision", "the script's"]
    real = ran(["-m", "accelerate.commands.launch", "--config_file", "acc.yaml", *flags.split(), *args], tmp_path)
    if flags:  # a pasted command, imported
        command = shlex.join(["accelerate", "launch", "--config_file", "acc.yaml", *flags.split(), *args])
        words = [sys.executable, "-m", "dstui", "import", "-", "-o", "plan.yaml"]
        subprocess.run(words, cwd=tmp_path, input=command, text=True, check=True, capture_output=True)
        ours = ran(["-m", "dstui", "--headless", "plan.yaml"], tmp_path)
    else:
        ours = ran(["-m", "dstui", "--headless", "acc.yaml", "--", *args], tmp_path)
    assert ours["ranks"] == 2 and ours["name"] == "a b"
    for one in (real, ours):  # the plugin writes these out, and DeepSpeed has them as defaults
        one["config"]["zero_optimization"].setdefault("stage3_gather_16bit_weights_on_model_save", False)
        for device in ("offload_optimizer", "offload_param"):
            if (one["config"]["zero_optimization"].get(device) or {}).get("device") in (None, "none"):
                one["config"]["zero_optimization"].pop(device, None)
    assert ours == real
