"""From a folder with only a script and its JSON or YAML to a finished training, in a real terminal: `dstui`, s, l, l."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests import releases
from tests.adopt.plain_loops import LOOPS
from tests.terminal import Terminal

HEAD = """
import os
import deepspeed.ops
deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
import torch
from torch import nn
"""
PLAIN = (
    HEAD
    + """
import argparse, deepspeed
args = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_known_args()[0]
model = nn.Linear(16, 1)
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
for step in range(1, 7):
    loss = engine(torch.ones(2, 16)).float().pow(2).mean()
    engine.backward(loss)
    engine.step()
    print(f"step {step}/6 loss {loss.item():.4f}", flush=True)
"""
)
ACCELERATE = (
    HEAD
    + """
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
model = nn.Linear(16, 1)
model.config = type("Config", (), {"hidden_size": 16})()
loader = torch.utils.data.DataLoader(torch.ones(24, 16), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader)
for step, x in enumerate(loader, 1):
    loss = model(x.to(next(model.parameters()).dtype)).float().pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}/6 loss {loss.item():.4f}", flush=True)
"""
)
TRAINER = (
    HEAD
    + """
import deepspeed
deepspeed.init_distributed(dist_backend="gloo")
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments
args = TrainingArguments(
    output_dir="out", deepspeed=os.environ["DSTUI_DS_CONFIG"], use_cpu=True, max_steps=6, logging_steps=1, report_to="none",
    per_device_train_batch_size=2, save_strategy="no",
)
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, vocab_size=64)
data = [{"input_ids": (ids := torch.randint(0, 64, (16,))), "labels": ids} for _ in range(32)]
Trainer(model=AutoModelForCausalLM.from_config(LlamaConfig(**size)), args=args, train_dataset=data).train()
"""
)
LORA = (
    HEAD
    + """
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, vocab_size=64)
model = AutoModelForCausalLM.from_config(LlamaConfig(**size))
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
data = [{"input_ids": (ids := torch.randint(0, 64, (16,))), "labels": ids} for _ in range(24)]
loader = torch.utils.data.DataLoader(data, batch_size=2)
trained = [p for p in model.parameters() if p.requires_grad]
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(trained, lr=1e-2), loader)
for step, batch in enumerate(loader, 1):
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}/6 loss {loss.item():.4f} sharded {any(hasattr(p, 'ds_id') for p in model.parameters())}", flush=True)
"""
)
ADAM = {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}
PLAIN_JSON = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "optimizer": ADAM}
FILE = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
}
TRAINER_JSON = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
}
TOP = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 2\nmachine_rank: 0\n"
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "plain DeepSpeed": (PLAIN, {"ds.json": json.dumps(PLAIN_JSON)}),
    "accelerate, plugin": (
        ACCELERATE,
        {"acc.yaml": f"{TOP}mixed_precision: 'no'\ndeepspeed_config: {{zero_stage: 2, gradient_accumulation_steps: 1}}\n"},
    ),
    "accelerate, a file": (
        ACCELERATE,
        {"acc.yaml": f"{TOP}deepspeed_config: {{deepspeed_config_file: ds.json, zero3_init_flag: false}}\n", "ds.json": json.dumps(FILE)},
    ),
    "Trainer": (TRAINER, {"ds.json": json.dumps(TRAINER_JSON)}),
    "PEFT LoRA at ZeRO-3": (
        LORA,
        {"acc.yaml": f"{TOP}mixed_precision: 'no'\ndeepspeed_config: {{zero_stage: 3, gradient_accumulation_steps: 1}}\n"},
    ),
}


@pytest.mark.launcher
@pytest.mark.parametrize("case", CASES)
def test_script_and_its_configuration_train_from_the_tui(case: str, tmp_path: Path) -> None:
    script, files = CASES[case]
    for name, text in {"train.py": script, **files}.items():
        (tmp_path / name).write_text(text)
    terminal = dstui(tmp_path)
    try:
        terminal.wait("What do you want to start from?", "s train.py with", "CPU")
        terminal.press("s")
        trains(terminal)
        assert "LoRA" not in case or "sharded True" in terminal.text
    finally:
        terminal.close()


@pytest.mark.launcher
def test_student_and_teacher_train_from_the_tui(tmp_path: Path) -> None:
    terminal = dstui(tmp_path, "distillation")
    try:
        trains(terminal)
        assert "student loss" in terminal.text and "teacher loss" in terminal.text
    finally:
        terminal.close()


@pytest.mark.launcher
@pytest.mark.parametrize("name", LOOPS)
def test_plain_loop_trains_by_keys_alone(name: str, tmp_path: Path) -> None:
    text = LOOPS[name].text.replace("lr=1e-2", "lr=0.1").replace('"cuda"', '"cpu"')  # without GPUs
    longer = {"torch.randn(64, 4)": "torch.randn(256, 4)", "while i < 8": "while i < 64", "step in range(4)": "step in range(16)"}
    for few, many in longer.items():  # enough steps to learn
        text = text.replace(few, many)
    (tmp_path / "train.py").write_text(text)
    terminal = dstui(tmp_path)
    try:
        terminal.wait("What do you want to start from?", "r 2 ranks on the CPU")
        terminal.press("r")
        terminal.wait("1 · Machine", "8 Review")
        terminal.press("8")
        terminal.wait("would train", "write train_deepspeed.py")
        terminal.press("x")  # the fix is to adapt the script
        terminal.wait("▸ → write train_deepspeed.py")
        terminal.press("\r")
        terminal.wait("The Plan trains train_deepspeed.py now")
        launches(terminal)
    finally:
        terminal.close()
    assert (tmp_path / "train.py").read_text() == text
    logs = list(tmp_path.glob("dstui_runs/*/logs/rank_*.log"))
    assert len(logs) == 2
    for log in logs:
        losses = [float(value) for value in re.findall(r"^loss ([\d.e-]+)", log.read_text(), re.MULTILINE)]
        print(f"{name} {log.stem}: {len(losses)} losses, {losses[0]:.4g} … {losses[-1]:.4g}")
        assert len(losses) >= 8 and sum(losses[-4:]) < 0.5 * sum(losses[:4]), losses


def dstui(folder: Path, *words: str) -> Terminal:
    """Start dstui in a folder, in a real terminal."""
    path = os.pathsep.join([str(releases.peft()), str(releases.accelerate()), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state"), "HF_HOME": str(folder / "hub")}
    return Terminal([sys.executable, "-m", "dstui", *words], 120, 40, env=own, cwd=str(folder))


def trains(terminal: Terminal) -> None:
    """Go from the form to the end of the run."""
    terminal.wait("1 · Machine", "8 Review")
    terminal.settle(0.5)
    terminal.press("8")
    launches(terminal)


def launches(terminal: Terminal) -> None:
    """Go from Review to the end of the run."""
    terminal.wait("launches it")
    terminal.press("l")
    terminal.wait("Ranks", "Log: all ranks")
    terminal.wait("succeeded", "0 ✔ ended", "1 ✔ ended", "loss")
