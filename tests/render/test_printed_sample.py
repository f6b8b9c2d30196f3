"""A sample of the code that `dstui render --only code` prints, run on one CPU rank; tests/long/test_printed_code.py runs all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dstui.plan import load
from dstui.render.code import render_code
from tests import printed_code, releases

BATCH = "train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 8"
ADAM = "optimizer: {type: AdamW, params: {lr: 1e-2, torch_adam: true}}"
WARM = "scheduler: {type: WarmupLR, params: {warmup_min_lr: 1e-3, warmup_max_lr: 1.1e-2, warmup_num_steps: 10, warmup_type: linear}}"
PLAIN_GLOO = """# asks DeepSpeed
import deepspeed.ops
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # otherwise it is compiled, for a minute
"""


def run_script(script: str, folder: Path, configs: dict[str, Any]) -> dict[str, Any]:
    """Run a script and return what it reports at its end."""
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, config in configs.items():
        env[f"DSTUI_DS_CONFIG{'_' if name else ''}{name.upper()}"] = str(folder / f"{name}.json")
        (folder / f"{name}.json").write_text(json.dumps(config, default=float))
    words = [sys.executable, "-c", PLAIN_GLOO + f"import sys\nsys.path.insert(0, {str(releases.accelerate())!r})\n" + script]
    env |= {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_DEEPSPEED": "true"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    line = next((line.partition("TOLD ")[2] for line in done.stdout.splitlines() if "TOLD " in line), "")
    assert line, done.stdout[-2000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(line)
    return found


def test_plain_deepspeed_trains_and_its_weights_are_read_again(tmp_path: Path) -> None:
    plan = load(f"version: 1\njob: {{script: t.py}}\ndeepspeed: {{{BATCH}, {ADAM}, {WARM}, zero_optimization: {{stage: 2}}}}\n")
    script, later = printed_code.scripts(render_code(plan), kind="ReturnsTheLoss")
    first = run_script(script, tmp_path, {"": plan.deepspeed})
    assert first == {"steps": 2, "micro": 16, "lr": pytest.approx(2e-3), "stage": 2}
    assert run_script(later, tmp_path, {}) == {"equal": True, "in the file": True, "changed": True}


def test_two_models_of_accelerate_step_with_their_schedulers(tmp_path: Path) -> None:
    models = f"student: {{deepspeed: {{{BATCH}, {WARM}, zero_optimization: {{stage: 2}}}}}}\n"
    models += f"  critic: {{deepspeed: {{{BATCH}, {ADAM}, zero_optimization: {{stage: 2}}}}}}\n"
    cluster = "cluster: {hosts: {localhost: 1}, env: {DS_ACCELERATOR: cpu}}"
    plan = load(f"version: 1\njob: {{script: t.py, integration: accelerate}}\n{cluster}\nmodels:\n  {models}")
    script, _ = printed_code.scripts(render_code(plan), "tell(student=engine_summary(student), critic=engine_summary(critic))")
    found = run_script(script, tmp_path, {name: config for name, config in plan.configurations.items() if name})
    assert {name: one["steps"] for name, one in found.items()} == {"student": 2, "critic": 2}
    assert found["student"]["lr"] == pytest.approx(2e-3) and found["critic"]["lr"] == pytest.approx(1e-2 / 3)
