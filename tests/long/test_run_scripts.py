"""`dstui run` of scripts that are harder than one launch: several at once, fifty in a loop, a loop of torch's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PRINTS = "import os, sys\nprint('rank', os.environ['RANK'], sys.argv[-1], flush=True)\n"
TRAINS = PRINTS + "import torch\nif '--never' in sys.argv:\n    torch.ones(1, requires_grad=True).sum().backward()\n"


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("deepspeed", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("deepspeed has no program beside this interpreter: pip install deepspeed")
    (folder / "train.py").write_text(TRAINS if "plain loop" in text else PRINTS)
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    words = [sys.executable, "-m", "dstui", "run", *options, "--", "bash", "-c", text]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=500, check=False)


def test_two_launches_side_by_side_are_two_jobs(tmp_path: Path) -> None:
    launch = "deepspeed --num_gpus 2 --master_port {} train.py {} & "
    done = run(tmp_path, launch.format(29641, "a") + launch.format(29642, "b") + "wait")
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert (done.returncode, ranks) == (0, ["rank 0 a", "rank 0 b", "rank 1 a", "rank 1 b"]), done.stderr
    assert len(list(tmp_path.glob("dstui_runs/*/plan.yaml"))) == 2


def test_fifty_launches_in_a_loop_are_held_one_by_one(tmp_path: Path) -> None:
    done = run(tmp_path, "for n in $(seq 50); do deepspeed --num_gpus 2 train.py $n; done", "--hold", "-o", "held.yaml")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("held*.yaml"))) == 50 and "args: [50]" in (tmp_path / "held-50.yaml").read_text()


def test_a_loop_of_torchs_own_is_warned_of_and_runs_all_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, "deepspeed --num_gpus 2 train.py x  # a plain loop")
    assert done.returncode == 0 and "warning PL027" in done.stderr and "error PL027" not in done.stderr, done.stderr
    assert sum(line.startswith("rank") for line in done.stdout.splitlines()) == 2
