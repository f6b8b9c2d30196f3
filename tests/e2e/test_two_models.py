"""Two models in one real job: every rank finds both configurations, by argument and by variable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dstui

pytestmark = pytest.mark.launcher

SCRIPT = """\
import json, os, sys
both = [json.load(open(path))["zero_optimization"]["stage"] for path in sys.argv[1:3]]
same = [os.path.samefile(os.environ["DSTUI_DS_CONFIG_" + name], path) for name, path in zip(("STUDENT", "TEACHER"), sys.argv[1:])]
print("stages", both, "same", same, "student_loss", 1.5, flush=True)
"""
PLAN = """\
version: 1
name: two
job: {script: two.py, args: ["{ds_config:student}", "{ds_config:teacher}"]}
cluster: {hosts: {localhost: 2}, launcher_args: [--no_local_rank], env: {DS_ACCELERATOR: cpu}}
models:
  student: {deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 2}}}
  teacher: {role: inference, deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3}}}
"""


def test_every_rank_finds_both_configurations_and_its_metrics_are_read(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    done = dstui("--headless", "plan.yaml", "--json", "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    told = {event["rank"]: event["text"] for event in events if event["event"] == "line" and "stages" in event["text"]}
    assert all("stages [2, 3] same [True, True]" in text for text in told.values()) and len(told) == 2
    assert {(e["rank"], e["value"]) for e in events if e["event"] == "metric" and e["name"] == "student_loss"} == {(0, 1.5), (1, 1.5)}
