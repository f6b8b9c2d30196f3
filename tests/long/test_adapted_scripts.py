"""Plain loops converted by dstui, trained on two CPU ranks: their losses equal those of a conversion by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dstui.adopt.adapted_script import adapted
from tests.adopt.plain_loops import HEAD, LOOPS

BY_HAND = (
    HEAD
    + """\
import contextlib, json, os, sys, deepspeed
deepspeed.init_distributed()
given = json.loads(sys.argv[1])
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) if given.get("deep") else nn.Linear(4, 1)
optimizer = torch.optim.__dict__[given.get("optimizer", "AdamW")](model.parameters(), lr=given.get("lr", 1e-2))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5) if given.get("schedules") else None
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=os.environ["DSTUI_DS_CONFIG"])
sampler = torch.utils.data.DistributedSampler(dataset, shuffle=given.get("shuffle", False))
accumulate = engine.gradient_accumulation_steps()
batches = list(DataLoader(dataset, batch_size=given.get("batch", 4), sampler=sampler)) if "same" not in given else [
    (x[at : at + 4], x[at : at + 4].sum(1, keepdim=True)) for at in range(given["same"])]
for epoch in range(given.get("epochs", 1)):
    for inputs, targets in batches:
        with torch.autocast("cpu") if given.get("autocast") else contextlib.nullcontext():
            loss = nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        last = engine.is_gradient_accumulation_boundary()
        engine.step()
        if last and scheduler:
            scheduler.step()
        print("loss", loss.item() / accumulate, flush=True)
"""
)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "flat": ({"epochs": 2}, {}),
    "functions": ({"epochs": 2, "optimizer": "Adam"}, {}),
    "accumulated": ({"deep": True, "schedules": True}, {"gradient_accumulation_steps": 2}),
    "class": ({"shuffle": True}, {}),
    "scaled": (
        {"shuffle": True, "optimizer": "SGD", "lr": 0.1, "autocast": True},
        {"gradient_clipping": 1.0, "zero_allow_untested_optimizer": True},
    ),
    "saved": ({"epochs": 2}, {}),
    "norm": ({"epochs": 2}, {"gradient_clipping": 1.0}),
    "joined": ({}, {}),
    "only guard": ({"deep": True}, {"gradient_accumulation_steps": 2}),
    "by hand": ({"same": 8}, {}),
    "inline": ({"batch": 2}, {}),
    "choice": ({"epochs": 2}, {}),
    "given to a class": ({}, {}),
    "wrapped apart": ({}, {}),
    "named part": ({}, {}),
    "micro-batches": ({}, {"gradient_accumulation_steps": 2}),
}
"""Loop -> the training code by hand, and further keys of its configuration."""


ABORTED = "terminate called without an active exception"
"""What torch prints if a thread of gloo outlives the interpreter, sometimes at the end of any script on CPU ranks."""


def losses(folder: Path, script: str, more: dict[str, Any], *args: str) -> list[float]:
    """Return what both ranks print, sorted."""
    (folder / "train.py").write_text(script)
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, **more}
    (folder / "ds.json").write_text(json.dumps(config))
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "DSTUI_DS_CONFIG": str(folder / "ds.json"), "OMP_NUM_THREADS": "1"}
    ranks = ["--standalone", "--nproc_per_node=2", "--redirects=1", "--log-dir"]  # a log for each rank: their lines would mix
    for attempt in map(str, range(3)):
        command = [sys.executable, "-m", "torch.distributed.run", *ranks, attempt, "train.py", *args]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
        logs = [path.read_text() for path in (folder / attempt).rglob("stdout.log")]
        shutil.rmtree(folder / attempt)
        if ABORTED not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(float(value) for log in logs for value in re.findall(r"^loss ([\d.e-]+)$", log, re.MULTILINE))


@pytest.mark.parametrize("name", CASES)
def test_losses_equal_a_conversion_by_hand(tmp_path: Path, name: str) -> None:
    by_hand, config = CASES[name]
    script = adapted(LOOPS[name].text).text.replace('"cuda")', '"cpu")')  # a loop for GPUs, on ranks without
    ours = losses(tmp_path, script, config)
    assert len(ours) == 64 // by_hand.get("batch", 4) * by_hand.get("epochs", 1)
    assert ours == pytest.approx(losses(tmp_path, BY_HAND, config, json.dumps(by_hand)), rel=1e-5)


def test_every_loop_is_trained() -> None:
    assert LOOPS.keys() - CASES.keys() == {"tabs", "values"}  # they differ from trained ones in ways that training does not show
