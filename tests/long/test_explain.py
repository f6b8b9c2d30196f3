"""`dstui explain` compared to real ranks of 30 generated Plans: environment, arguments, the engine's configuration and batch."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import releases
from tests.launcher_path import with_bare_launcher
from tests.long.imported import imported

SCRIPTS = {
    "deepspeed": """\
import deepspeed, json, os, sys, torch
model = torch.nn.Linear(8, 8)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=os.environ["DSTUI_DS_CONFIG"])
""",
    "accelerate": """\
import json, os, sys, torch
from accelerate import Accelerator, InitProcessGroupKwargs
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 8)
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
loader = DataLoader(TensorDataset(torch.zeros(64, 8)), batch_size=4)
engine, _, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
""",
    "trainer": """\
import json, os, sys, torch, transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
args, = transformers.HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=32))
data = [{"input_ids": torch.zeros(8, dtype=torch.long), "labels": torch.zeros(8, dtype=torch.long)}] * 64
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
engine = trainer.model_wrapped
""",
}
TOLD = """\
if os.environ["RANK"] == "1":
    batch = [engine.train_batch_size(), engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()]
    told = {"env": dict(os.environ), "argv": sys.argv[1:], "batch": batch, "config": engine._config._param_dict}
    open("told.json", "w").write(json.dumps(told, default=str))
"""


def generated(number: int) -> dict[str, Any]:
    """Return a generated Plan by its number."""
    draw = random.Random(number)
    reader = ("deepspeed", "accelerate", "trainer")[number % 3]
    micro, steps = draw.choice([1, 2, 4]), draw.choice([1, 2, 3])
    batches: list[dict[str, Any]] = [
        {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps},
        {"train_batch_size": 2 * micro * steps, "gradient_accumulation_steps": steps},
        {"train_batch_size": 2 * micro * steps, "train_micro_batch_size_per_gpu": micro},
    ]
    args: list[str] = ["--tag", draw.choice(["a b", "x=1", "'"])]
    if reader == "deepspeed":
        config = draw.choice(batches)
    elif reader == "accelerate":
        config = {"train_micro_batch_size_per_gpu": draw.choice(["auto", 4]), "gradient_accumulation_steps": draw.choice(["auto", 1])}
        config["gradient_clipping"] = draw.choice(["auto", 0.5])
    else:
        config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto"}
        args = ["--deepspeed", "{ds_config}", "--per_device_train_batch_size", str(micro), "--gradient_accumulation_steps", str(steps)]
        args += ["--max_steps", "1", "--use_cpu", "--report_to", "none", "--save_strategy", "no", "--output_dir", "out", "--bf16", "false"]
    stage = draw.choice([0, 1, 2, 3])
    config["zero_optimization"] = {"stage": stage}
    if reader != "deepspeed" and stage:
        config["zero_optimization"]["reduce_bucket_size"] = "auto" if reader == "trainer" else 1000
    if reader == "deepspeed":
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}}
        config["bf16"] = {"enabled": draw.choice([True, False])}
    else:
        config["zero_allow_untested_optimizer"] = True
    cluster = {"hosts": {"localhost": 2}, "env": {"EXTRA": draw.choice(["a b", '"', "$x"]), "OMP_NUM_THREADS": "1"}}
    cluster |= {"launcher": draw.choice(["local", "torchrun"])}
    job = {"script": "train.py", "args": args, "integration": reader, **({"optimizer": "script"} if reader != "deepspeed" else {})}
    model = {"model": {"source": "./config.json"}} if reader == "trainer" else {}
    return {"version": 1, "name": "generated", "job": job, **model, "cluster": cluster, "run": {"observe": "off"}, "deepspeed": config}


def dstui(*words: str, cwd: Path, beside: str) -> subprocess.CompletedProcess[str]:
    """Run dstui. `beside`: folder of further packages of the ranks."""
    path = os.pathsep.join((with_bare_launcher(), beside))
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", "dstui", *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False, env=env
    )


def leaves(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= leaves(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return found


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the beginning of a script whose rank is forked from an interpreter with all imports."""
    with imported(tmp_path_factory.mktemp("imported") / "socket", [str(releases.accelerate())]) as text:
        yield text


@pytest.mark.parametrize("number", range(30))
def test_explained_values_equal_those_of_real_ranks(number: int, tmp_path: Path, beginning: str) -> None:
    plan = generated(number)
    beside = str(releases.accelerate())
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 32}))
    (tmp_path / "train.py").write_text(beginning + SCRIPTS[plan["job"]["integration"]] + TOLD)
    explained = dstui("explain", "plan.yaml", "--json", cwd=tmp_path, beside=beside)
    assert explained.returncode == 0, explained.stderr
    found = json.loads(explained.stdout)
    assert found["error"] is None
    ran = dstui("--headless", "plan.yaml", "--run-dir", "job", cwd=tmp_path, beside=beside)
    assert (tmp_path / "told.json").exists(), ran.stdout[-3000:] + ran.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    place = told["env"]["DSTUI_DS_CONFIG"]
    for name, value in found["ranks"]["environment"].items():
        assert told["env"][name] == value.replace("{ds_config}", place), name
    words = [word for word in told["argv"] if not word.startswith("--local_rank")]
    assert words == [word.replace("{ds_config}", place) for word in found["ranks"]["arguments"]]
    assert int(told["env"]["WORLD_SIZE"]) == found["world_size"] == 2
    batch = found["batch"][""]
    for name, real in zip(("train", "micro", "steps"), told["batch"], strict=True):
        assert batch[name] in (None, real), (name, batch, told["batch"])
    if plan["job"]["integration"] != "accelerate":
        assert None not in (batch["train"], batch["micro"], batch["steps"])
    real = leaves(told["config"])
    for path, value in leaves(found["configurations"][""]).items():
        assert value == "auto" or real[path] == value, (path, value, real.get(path))
    for file in found["files"]:
        assert (tmp_path / "job" / file["name"]).exists(), file
