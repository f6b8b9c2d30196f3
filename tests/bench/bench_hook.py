"""What the hook in a rank costs: steps with and without its wrappers, in pairs, in one process; the import; the memory that is kept.

pytest tests/bench/bench_hook.py -s
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from dstui.jobs.supervisor.launch_command import HOOK, SHIM

SCRIPT = """
import gc, os, sys, time
from statistics import median
import deepspeed, torch
deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}, "zero_optimization": {"stage": 0}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
kind, x = deepspeed.DeepSpeedEngine, torch.ones(64, 256)
wrapped = {name: vars(kind)[name] for name in ("forward", "backward", "step")}
plain = {name: method.__wrapped__ for name, method in wrapped.items()}


def block(methods, steps):
    for name, method in methods.items():
        setattr(kind, name, method)
    began = time.process_time()
    for _ in range(steps):
        loss = engine(x).square().mean()
        engine.backward(loss)
        engine.step()
    return time.process_time() - began


block(wrapped, 400)  # what comes at once is reported whole
ratios, rates = [], []
for pair in range(int(sys.argv[1])):
    first, second = (wrapped, plain) if pair % 2 else (plain, wrapped)
    times = [block(first, 150), block(second, 150)]
    with_hook, without = times if pair % 2 else times[::-1]
    ratios.append(with_hook / without)
    rates.append(150 / without)
block(wrapped, 150)
gc.collect()
before = sum(isinstance(value, torch.Tensor) for value in gc.get_objects())
block(wrapped, 600)
gc.collect()
after = sum(isinstance(value, torch.Tensor) for value in gc.get_objects())
print("RESULT", median(ratios), min(ratios), max(ratios), median(rates), after - before, flush=True)
os._exit(0)
"""
PAIRS = 60


def test_steps_with_and_without_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    for part in ("logs", "ranks"):
        (tmp_path / part).mkdir()
    env = {
        **os.environ,
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "DS_ACCELERATOR": "cpu",
    }
    words = [sys.executable, SHIM, tmp_path, "tag", f"hook:engine:{HOOK.parent}", tmp_path / "script.py", str(PAIRS)]
    subprocess.run(words, env=env, check=False)
    log = (tmp_path / "logs/rank_0.log").read_text()
    result = next((line for line in log.splitlines() if line.startswith("RESULT")), log[-3000:])
    ratio, low, high, rate, kept = map(float, result.split()[1:])
    print(
        f"\nsteps: {100 * (ratio - 1):+.2f} % (median of {PAIRS} pairs, {100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %) at {rate:,.0f} steps/s"
    )
    print(f"tensors kept after 600 more steps: {kept:.0f}; lines: {(tmp_path / 'engine/rank_0.jsonl').stat().st_size:,} bytes")
    assert ratio < 1.02 and kept <= 0


def test_its_import(tmp_path: Path) -> None:
    def seconds(*hook: str) -> float:
        env = {"RANK": "0", "HOME": str(tmp_path)}
        if hook:
            env |= {"DSTUI_HOOK": f"engine\n{tmp_path}/engine\nunset", "PYTHONPATH": str(HOOK.parent)}
        done = subprocess.run([sys.executable, "-X", "importtime", "-c", "pass"], env=env, capture_output=True, text=True, check=True)
        lines = [line for line in done.stderr.splitlines() if line.endswith("| site")]
        return int(lines[0].split("|")[1]) / 1e6

    seconds("hook")  # its bytecode is written once
    pairs = [(seconds("hook"), seconds()) for _ in range(20)]
    print(f"\nimport: {1000 * median(a - b for a, b in pairs):.2f} ms")
    assert median(a - b for a, b in pairs) < 0.002
