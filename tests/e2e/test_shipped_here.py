"""A shipped Plan used in a folder of the user applies to the script there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.documents.open import open_document
from tests.command import dstui

TRAINS = """\
from accelerate import Accelerator
import torch
accelerator = Accelerator()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.backward(model(torch.ones(1)))
"""
NAME = "lora-zero3-offload"


@pytest.mark.parametrize(
    ("files", "script", "said"),
    [
        ({"train.py": TRAINS}, "train.py", False),
        ({"finetune.py": TRAINS, "helper.py": "X = 1\n"}, "finetune.py", True),
        ({"one.py": TRAINS, "two.py": TRAINS}, "train.py", False),
        ({}, "train.py", False),
    ],
)
def test_shipped_plan_takes_the_script_of_the_folder(
    files: dict[str, str], script: str, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        Path(name).write_text(text)
    opened = open_document(NAME)
    assert (opened.plan.job.script, opened.plan.base, opened.path) == (script, str(tmp_path), None)
    assert bool(opened.notes) == said


def test_its_command_runs_the_script_and_check_inspects_it(tmp_path: Path) -> None:
    (tmp_path / "finetune.py").write_text(TRAINS)
    machine = Path(__file__).parents[1] / "bench" / "no_gpu.json"  # it does not say whether accelerate is installed
    shown = dstui("--headless", NAME, "--dry-run", "--machine", str(machine), cwd=tmp_path)
    assert shown.returncode == 0 and "finetune.py" in shown.stdout.rpartition("# launch.sh")[2]
    (tmp_path / "finetune.py").write_text("import torch\nloss = torch.ones(1).sum()\nloss.backward()\n")
    checked = dstui("check", NAME, cwd=tmp_path)
    assert checked.returncode == 1 and "PL027" in checked.stdout


def test_shipped_plan_with_its_own_program_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    monkeypatch.chdir(tmp_path)
    assert open_document("quickstart").plan.job.module == "dstui.examples.train_tiny"
