"""Plain loops with the lines that dstui puts into them, trained on two CPU ranks: their losses are those of DeepSpeed by hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.adopt.adapted_script import adapted
from tests.adopt.plain_loops import HEAD, LOOPS

BY_HAND = (
    HEAD
    + """\
import os, sys, deepspeed
deepspeed.init_distributed()
model = nn.Linear(4, 1) if sys.argv[1] == "one" else nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.__dict__[sys.argv[2]](model.parameters(), lr=1e-2)
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=os.environ["DSTUI_DS_CONFIG"])
rank, accumulate = deepspeed.comm.get_rank(), engine.gradient_accumulation_steps()
for epoch in range(int(sys.argv[3])):
    for at in range(0, 64, 8):
        own = x[at + rank : at + 8 : 2]
        loss = nn.functional.mse_loss(engine(own), own.sum(1, keepdim=True))
        engine.backward(loss)
        engine.step()
        print("loss", loss.item() / accumulate, flush=True)
"""
)


def losses(folder: Path, script: str, accumulate: int, *args: str) -> list[float]:
    """What both ranks print, in order of size: they print at the same time."""
    (folder / "train.py").write_text(script)
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": accumulate, "zero_optimization": {"stage": 1}}
    (folder / "ds.json").write_text(json.dumps(config))
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "DSTUI_DS_CONFIG": str(folder / "ds.json"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train.py", *args]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(map(float, re.findall(r"loss ([\d.e-]+)", done.stdout)))


@pytest.mark.parametrize(
    ("name", "accumulate", "args"),
    [
        ("flat", 1, ("one", "AdamW", "2")),
        ("functions", 1, ("one", "Adam", "2")),
        ("only guard", 2, ("two", "AdamW", "1")),
        ("joined", 1, ("one", "AdamW", "1")),
    ],
)
def test_the_losses_are_those_of_deepspeed_by_hand(tmp_path: Path, name: str, accumulate: int, args: tuple[str, ...]) -> None:
    ours = losses(tmp_path, adapted(LOOPS[name].text).text, accumulate)
    assert len(ours) == 16 * int(args[2])
    assert ours == pytest.approx(losses(tmp_path, BY_HAND, accumulate, *args), rel=1e-5)
