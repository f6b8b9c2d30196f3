"""The shipped distillation Plan trains on two CPU ranks: a student at ZeRO-2 learns from a teacher at ZeRO-3, each with its own plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import releases

STEPS = 30


def test_student_approaches_the_teacher_and_its_checkpoint_is_complete(tmp_path: Path) -> None:
    path = os.pathsep.join([str(releases.accelerate()), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "DS_ACCELERATOR": "cpu", "XDG_STATE_HOME": str(tmp_path / "state")}
    args = f"[--steps, '{STEPS}', --save, {tmp_path}/out, --student, '{{ds_config:student}}', --teacher, '{{ds_config:teacher}}']"
    dstui = [sys.executable, "-m", "dstui"]
    words = [*dstui, "--headless", "distillation", "--json", "--run-dir", "run", "--set", f"job.args={args}"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert any("teacher DeepSpeedZeRoOffload, student DeepSpeedZeroOptimizer" in e["text"] for e in events if e["event"] == "line")
    losses = {
        name: [e["value"] for e in events if e["event"] == "metric" and e["name"] == name and e["rank"] == 0]
        for name in ("student_loss", "teacher_loss")
    }
    assert [len(found) for found in losses.values()] == [STEPS, STEPS]
    assert losses["student_loss"][-1] < losses["student_loss"][0] - 0.3
    assert max(losses["teacher_loss"]) - min(losses["teacher_loss"]) < 0.3, "the teacher is not trained"
    looked = subprocess.run([*dstui, "checkpoint", "out", "--json"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    found = json.loads(looked.stdout)
    assert (looked.returncode, found["complete"], found["stage"], found["world_size"]) == (0, True, 2, 2)
