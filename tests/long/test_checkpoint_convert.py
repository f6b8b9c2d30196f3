"""A checkpoint of two ranks is converted, and one rank resumes from it, with the real tools and launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dstui.checkpoints.checkpoint import read_checkpoint
from dstui.checkpoints.convert import SAFE
from tests.checkpoints.conftest import checkpoint
from tests.checkpoints.test_hostile_checkpoints import calls, write

__all__ = ["checkpoint"]
RESUME = """
import sys, deepspeed, torch
from torch import nn
deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}, "checkpoint": {"load_universal": sys.argv[2] == "universal"}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
_, state = engine.load_checkpoint(sys.argv[1], tag=sys.argv[3])
print("WENT ON FROM", engine.global_steps, state["epoch"], flush=True)
"""


def resume(folder: Path, kind: str, tag: str, script: Path) -> str:
    script.write_text(RESUME)
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "1", "OMP_NUM_THREADS": "1"}
    runner = ["-m", "deepspeed.launcher.runner", "--num_gpus", "1", "--no_local_rank", "--master_port", "29548"]
    words = [sys.executable, *runner, str(script), str(folder), kind, tag]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def test_one_rank_resumes_from_a_universal_checkpoint_only(checkpoint: Callable[[int], Path], tmp_path: Path) -> None:
    folder = checkpoint(2)
    assert "DP world size of 2" in resume(folder, "plain", "global_step3", tmp_path / "resume.py"), "what CK002 says"
    words = [sys.executable, "-m", "dstui", "checkpoint", str(folder), "--universal", str(folder / "global_step3_universal")]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    assert read_checkpoint(folder, "global_step3_universal").universal
    assert "WENT ON FROM 3 7" in resume(folder, "universal", "global_step3_universal", tmp_path / "resume.py")


@pytest.mark.parametrize("blocks", [1, 2])
def test_disk_that_fills_up_leaves_nothing(blocks: int, checkpoint: Callable[[int], Path], tmp_path: Path) -> None:
    folder = checkpoint(3)
    command = f"ulimit -f {blocks}; exec {sys.executable} -m dstui checkpoint {folder} --fp32 {tmp_path}/out"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # Python would leave truncated bytecode of dstui
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".dstui-*"))


def test_conversion_executes_nothing_that_a_file_names(checkpoint: Callable[[int], Path], tmp_path: Path) -> None:
    folder, proof = checkpoint(2), tmp_path / "executed"
    for shard in (folder / "global_step3").glob("*.pt"):
        write(shard, calls("os", "system", f"touch {proof}"))
    words = ["--input_folder", str(folder / "global_step3"), "--output_folder", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, str(SAFE), "deepspeed.checkpoint.ds_to_universal", *words], capture_output=True, check=False)
    assert done.returncode and not proof.exists()
