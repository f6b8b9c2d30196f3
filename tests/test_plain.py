"""dstui --plain: prompts for scripts and screen readers, with answers on standard input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dstui.documents.plan_files import read_plan
from dstui.jobs.store.folder import JobFolder
from tests.command import dstui

PLAN = """\
version: 1
name: "nice\\e[2J\\u202ename"
job: {script: train.py, args: ["{ds_config}"]}
cluster: {hosts: {localhost: 2}}
deepspeed:
  train_micro_batch_size_per_gpu: 4   # kept
  zero_optimization: {stage: 2}
"""
WITHOUT = "import sys; from dstui.cli import main; code = main(sys.argv[1:]); heavy = {'textual', 'torch', 'deepspeed', 'numpy'} & set(sys.modules)"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a separate folder, with separate state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch, deepspeed\nengine, *_ = deepspeed.initialize(model=torch.nn.Linear(1, 1))\n")
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def answer(*lines: str, file: str = "plan.yaml") -> subprocess.CompletedProcess[str]:
    """Run `dstui --plain` with these lines as its standard input."""
    argv = [sys.executable, "-c", f"{WITHOUT}; sys.exit(f'{{heavy}}' if heavy else code)", "--plain", file]
    return subprocess.run(argv, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)


def test_every_step_edits_a_plan_that_is_saved(folder: Path) -> None:
    ran = answer(
        "",
        "",
        "1",
        "?",
        "4",
        "4.5",
        "3",
        "",
        "2",
        "9",
        "n",
        "",
        "",
        "",
        "1",
        "8",
        "set deepspeed.gradient_clipping=1.0",
        "",
        "",
        "save",
        "q",
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "\x1b" not in ran.stdout and "\u202e" not in ran.stdout
    steps = [line.partition(". ")[0] for line in ran.stdout.splitlines() if line.startswith("Step ")]
    assert [step.split(":")[0] for step in steps] == [f"Step {n} of 7" for n in range(1, 8)]
    assert "Why this default: DeepSpeed splits nothing unless it is told to" in ran.stdout
    saved = (folder / "plan.yaml").read_text()
    assert "train_micro_batch_size_per_gpu: 8   # kept" in saved
    plan = read_plan(Path("plan.yaml"))
    assert plan.get("deepspeed.zero_optimization.stage") == 3
    assert plan.get("deepspeed.zero_optimization.overlap_comm") is False
    assert plan.get("deepspeed.gradient_clipping") == 1.0
    assert ran.stdout.index("Findings: ") < ran.stdout.index("Forecast: ") < ran.stdout.index("save the Plan")


def test_edits_are_kept_when_input_ends_and_offered_at_next_start(folder: Path) -> None:
    first = answer("step 6", "1", "16", "set deepspeed.zero_optimization.stage=9", "set bf16.enabled=true", "u")
    assert first.returncode == 1
    assert "not saved; they are kept" in first.stdout
    assert "Set deepspeed.zero_optimization.stage=9\nerror DS019 deepspeed.zero_optimization.stage: stage is 9" in first.stdout
    assert "set bf16.enabled=true: bf16: unknown key; it is DeepSpeed's: write deepspeed.bf16" in first.stdout
    assert (folder / "plan.yaml").read_text() == PLAN
    second = answer("1", "step 6", "u", "q", "discard", "2")
    assert "that were not saved" in second.stdout
    assert "1. Micro-batch per GPU: 16 samples" in second.stdout
    assert second.returncode == 0, second.stdout
    assert not list((folder / "state").rglob("drafts/*.json"))
    assert dstui("--plain", "plan.yaml").returncode == 0  # standard input is empty, but there are no edits to lose


def test_errors_offer_fixes_and_prevent_a_launch(folder: Path) -> None:
    (folder / "plan.yaml").write_text(PLAN.replace("  zero_opt", "  train_batch_size: 5\n  zero_opt"))
    ran = answer("r", "launch", "4", "files", "b", "")
    assert "Not launched: " in ran.stdout
    assert "  4. fix: " in ran.stdout
    assert ran.stdout.count("Step 7 of 7") == 1
    assert "ds_config.json: " in ran.stdout
    assert not (folder / "dstui_runs").exists()


def test_start_without_a_file_asks_what_to_start_from(folder: Path) -> None:
    argv = [sys.executable, "-m", "dstui", "--plain"]
    ran = subprocess.run(argv, input="99\nb\n1\nq\n", capture_output=True, text=True, check=False)
    assert "What do you want to start from?" in ran.stdout
    assert "  1. train.py with " in ran.stdout
    assert "the file plan.yaml" in ran.stdout
    assert "This is the first step." in ran.stdout
    assert "Step 1 of 7" in ran.stdout


def test_ended_job_is_printed_as_lines(folder: Path) -> None:
    JobFolder(folder / "job").prepare(1)
    (folder / "job" / "status.json").write_text('{"version": 1, "state": "succeeded", "attempt": 1, "exit_code": 0, "ranks": {}}')
    ran = dstui("attach", "--plain", "job")
    assert ran.returncode == 0, ran.stderr
    assert "succeeded after" in ran.stdout
