"""Metrics that dstui reads from the lines of trl and Lightning equal those that the programs print, in real runs of tiny random models."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long.test_hook import DEFAULTS, HERE, PLAN, PROGRAMS, headless, printed

NAMES = {"learning_rate": "lr", "num_input_tokens_seen": "num_tokens"}
"""Metrics that dstui names differently."""


def series(folder: Path, run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return name -> (step, value) of rank 0, from `dstui logs --metrics json`."""
    command = [sys.executable, "-m", "dstui", "logs", str(run), "--metrics", "json"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True).stdout
    found: dict[str, list[tuple[int, float]]] = {}
    for one in json.loads(said)["metrics"]:
        if one["rank"] == 0 and one["source"] == "log":
            found.setdefault(one["name"], []).append((one["step"], one["value"]))
    return found


def run(folder: Path, name: str, *args: str) -> tuple[Path, list[str], str]:
    """Train without the hook, so that every metric is from a line; return the run, what rank 0 prints itself, and its log."""
    modules, said = PROGRAMS[name]
    for module in modules:
        pytest.importorskip(module, reason=f"{name} needs it: pip install {' '.join(modules)}")
    (folder / f"{name}.py").write_text((HERE / "hooked" / f"{name}.py").read_text())
    facts = {**DEFAULTS, **said, "name": name, "script": f"{name}.py", "args": json.dumps(args)}
    (folder / "plan.yaml").write_text(PLAN.format(**facts))
    code, job, output = headless(folder, "plan.yaml", "--no-observe")
    assert code == 0, output[-4000:]
    return job.path, printed(job, 0), job.log(0).read_text()


def test_every_metric_of_trl_is_read_as_printed(tmp_path: Path) -> None:
    path, losses, log = run(tmp_path, "sft")
    dicts = [ast.literal_eval(line) for line in log.splitlines() if line.startswith("{'")]
    read = series(tmp_path, path)
    steps = [one for one in dicts if "loss" in one]
    assert len(steps) == len(losses) == 6
    for name in steps[0]:
        assert [value for _, value in read[NAMES.get(name, name)]][:6] == [float(one[name]) for one in steps], name
    assert [value for _, value in read["loss"]] == pytest.approx([float(loss) for loss in losses], rel=1e-3)
    for name, value in dicts[-1].items():  # train_runtime and similar ones, once at the end
        assert any(got == pytest.approx(float(value)) for got in (number for values in read.values() for _, number in values)), name


def test_progress_bar_of_lightning_is_read_as_drawn(tmp_path: Path) -> None:
    path, losses, _ = run(tmp_path, "lit", "bar")
    read = series(tmp_path, path)
    last = dict(read["loss"])  # the bar increments the step before it has its loss, and is drawn for both
    assert last == {step: pytest.approx(float(loss), rel=5e-3) for step, loss in enumerate(losses, 1)} and len(losses) == 4, read["loss"]
    assert [value for _, value in read.get("trainable_parameters", [])] in ([], [577.0])
