"""A real `dstui forecast --calibrate`: a child measures this machine, nothing is compiled, and the next forecast uses the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PLAN = "version: 1\njob: {script: a}\nmodel: {source: gpt2}\ndeepspeed: {train_micro_batch_size_per_gpu: 1}\n"


def test_this_machine_is_measured_and_no_compiler_is_left_waiting(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")}
    done = subprocess.run(
        [sys.executable, "-m", "dstui", "forecast", "plan.yaml", "--calibrate"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (kept,) = (tmp_path / "cache" / "dstui" / "rates").glob("*.json")
    rates = json.loads(kept.read_text())["rates"]
    assert {"cpu_adam", "nvme_read", "nvme_write"} <= set(rates)
    assert all(rate > 1e6 for rate in rates.values())
    assert not list((tmp_path / "extensions").rglob("lock"))
