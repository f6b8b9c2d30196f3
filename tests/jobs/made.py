"""Write job folders by hand, for tests that only read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dstui.jobs.store.folder import JobFolder
from tests import command
from tests.job_json import write_status_json

PLAN = """\
version: 1
name: tiny
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
cluster: {hosts: {localhost: 2}, env: {OMP_NUM_THREADS: 1}}
deepspeed:
  train_micro_batch_size_per_gpu: 4   # as much as fits
  bf16: {enabled: true}
  zero_optimization: {stage: 2, reduce_bucket_size: 5e8}
"""


def make_job(path: Path, plan: str = PLAN, logs: dict[int, str] | None = None, **facts: Any) -> JobFolder:
    """Write the folder of an ended job; `facts` go to its status.json."""
    folder = JobFolder(path)
    folder.prepare(1)
    (path / "plan.yaml").write_text(plan)
    folder.launch_file.write_text(json.dumps({"base": str(path.parent)}))
    logs = logs if logs is not None else {0: "step 1 loss 2.0\n", 1: "step 1 loss 2.5\n"}
    for rank, text in logs.items():
        folder.log(rank).write_text(text)
        folder.record(rank).write_text(json.dumps({"rank": rank, "host": "h1", "pid": 1, "ended": 1767323105.0, "exit_code": 0}))
    ranks = {str(rank): {"host": "h1", "pid": 1, "state": "ended", "exit_code": 0} for rank in logs}
    began = {"started": "2026-01-02T03:04:05.000+00:00", "ended": "2026-01-02T03:05:05.000+00:00"}
    write_status_json(folder, {"version": 1, "state": "succeeded", "attempt": 1, "exit_code": 0, **began, "ranks": ranks, **facts})
    return folder


def dstui(*words: object, cwd: Path) -> tuple[int, str, str]:
    """Run the command of a user who has no other runs; return exit status, standard output and standard error."""
    done = command.dstui(*words, cwd=cwd, env={"XDG_STATE_HOME": str(cwd / "state"), "XDG_CACHE_HOME": str(cwd / "cache")})
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr
