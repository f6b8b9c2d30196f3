"""Recipes trained on two CPU ranks from dstui: LoRA with PEFT at ZeRO-3, and transformers' Trainer from a pasted command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dstui.adopt.recipes import Script, recipes
from dstui.adopt.script import inspect_script
from dstui.plan import load
from tests import releases
from tests.machines import NO_GPU

MODEL = """
import deepspeed.ops
deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

CONFIG = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                     vocab_size=64, max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
DATA = [{"input_ids": (ids := torch.randint(0, 64, (16,))), "labels": ids} for _ in range(32)]
"""
LORA = (
    MODEL
    + """
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
model = AutoModelForCausalLM.from_config(CONFIG)
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
split = any(hasattr(p, "ds_id") for p in model.parameters())
trained = [p for p in model.parameters() if p.requires_grad]
loader = torch.utils.data.DataLoader(DATA, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(trained, lr=1e-2), loader)
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
state_dict = accelerator.get_state_dict(model)
accelerator.unwrap_model(model).save_pretrained("adapter", is_main_process=accelerator.is_main_process, state_dict=state_dict)
if accelerator.is_main_process:
    shapes = sorted({tuple(tensor.shape) for tensor in load_file("adapter/adapter_model.safetensors").values()})
    print("TOLD", split, accelerator.num_processes, shapes, flush=True)
"""
)
TRAINER = (
    MODEL
    + """
import deepspeed
from transformers import HfArgumentParser, Trainer, TrainingArguments

deepspeed.init_distributed(dist_backend="gloo")
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
trainer = Trainer(model=AutoModelForCausalLM.from_config(CONFIG), args=args, train_dataset=DATA)
found = trainer.train()
trainer.save_model()
if trainer.is_world_process_zero():
    print("TOLD", args.world_size, found.global_step, round(found.training_loss, 2), flush=True)
"""
)
CONFIG = {
    "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_gather_16bit_weights_on_model_save": True},
}


def dstui(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(releases.peft()), str(releases.accelerate()), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "dstui", *words]
    return subprocess.run(command, cwd=folder, env=env, input=given, capture_output=True, text=True, timeout=400, check=False)


def test_lora_recipe_trains_and_saves_an_adapter_with_its_tensors(tmp_path: Path) -> None:
    (tmp_path / "lora.py").write_text(LORA)
    here = {
        "job.script": str(tmp_path / "lora.py"),
        "job.workdir": str(tmp_path),
        "cluster.hosts": "{localhost: 2}",
        "model": "null",
        "deepspeed.zero_optimization.offload_optimizer.device": "none",  # DeepSpeed would compile its own Adam for the CPU first
        "deepspeed.zero_optimization.offload_param.device": "none",
    }
    sets = [word for path, value in here.items() for word in ("--set", f"{path}={value}")]
    done = dstui(tmp_path, "--headless", "lora-zero3-offload", *sets)
    assert "TOLD True 2 [(4, 32), (32, 4)]" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


def test_trainer_trains_from_a_pasted_command(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG))
    options = "--output_dir out --use_cpu --bf16 --max_steps 4 --per_device_train_batch_size 2 --report_to none"
    made = dstui(tmp_path, "import", "-", "-o", "plan.yaml", given=f"deepspeed --num_gpus 2 trainer.py --deepspeed ds.json {options}\n")
    assert made.returncode == 0, made.stderr
    done = dstui(tmp_path, "--headless", "plan.yaml")
    assert "TOLD 2 4 " in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "out" / "model.safetensors").is_file()
    looked = dstui(tmp_path, "checkpoint", "out")
    assert looked.returncode in (0, 2), looked.stderr


def test_recipe_for_a_trainer_script_trains(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (recipe,) = recipes(Script("trainer.py", inspect_script(TRAINER)), NO_GPU)
    plan = load(recipe.text)
    options = ["--output_dir", "out", "--max_steps", "4", "--per_device_train_batch_size", "2", "--report_to", "none"]
    (tmp_path / "plan.yaml").write_text(plan.set("job.args", [*plan.job.args, *options]).text)
    done = dstui(tmp_path, "--headless", "plan.yaml")
    assert done.returncode == 0 and "TOLD 2 4" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]


def test_arguments_built_in_the_script_find_the_configuration_under_accelerate(tmp_path: Path) -> None:
    made = "args = TrainingArguments('out', use_cpu=True, max_steps=4, per_device_train_batch_size=2, report_to='none')"
    own = TRAINER.replace("(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()", made)
    own = (
        own.replace("HfArgumentParser, ", "")
        .replace("import deepspeed\n", "")
        .replace('deepspeed.init_distributed(dist_backend="gloo")\n', "")
    )
    (tmp_path / "trainer.py").write_text(own + "print('ENGINE', type(trainer.model_wrapped).__name__, flush=True)\n")
    assert dstui(tmp_path, "import", "trainer.py", "-o", "plan.yaml").returncode == 0
    done = dstui(tmp_path, "--headless", "plan.yaml")
    assert done.returncode == 0 and "TOLD 2 4" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
    assert "ENGINE DeepSpeedEngine" in done.stdout and "last loss" in done.stdout
