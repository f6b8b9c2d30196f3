"""Launchers of older releases start CPU ranks on a machine without numactl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.plan.catalogue import RELEASES
from tests.releases import installed

SCRIPT = "import os\nprint('LOCAL_SIZE is', os.environ['LOCAL_SIZE'])\n"
PLAN = """\
version: 1
job: {script: train.py, args: ["{ds_config}"]}
cluster: {cpu_ranks: 2}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""


@pytest.mark.parametrize("version", RELEASES[:-1])
def test_cpu_ranks_start_without_numactl(version: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    env = {name: value for name, value in os.environ.items() if name != "LOCAL_SIZE"} | {"PYTHONPATH": installed(version)}
    env["PATH"] = os.pathsep.join(folder for folder in env["PATH"].split(os.pathsep) if not Path(folder, "numactl").exists())
    words = [sys.executable, "-m", "dstui", "--headless", "plan.yaml"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("LOCAL_SIZE is 2") == 2
