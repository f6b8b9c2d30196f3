"""dstui checkpoint: shows content without executing it, consolidates weights completely or not at all, and checks a Plan against it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstui.adopt.script import inspect_script
from dstui.base.files import FileProblem
from dstui.checkpoints import convert as conversion
from dstui.checkpoints.checkpoint import Checkpoint, read_checkpoint
from dstui.checkpoints.convert import Conversion, convert
from dstui.checkpoints.resume import resume_arguments, resume_findings, with_arguments
from dstui.cli import main
from dstui.plan import load

pytestmark = [pytest.mark.launcher, pytest.mark.xdist_group("checkpoints")]
Made = Callable[[int], Path]
WEIGHTS = 16 * 32 + 32 + 32 * 4 + 4
"""The number of parameters of save.py's model."""


@pytest.mark.parametrize("stage", [2, 3])
def test_content_is_shown(stage: int, checkpoint: Made, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(stage)
    for path in (folder, folder / "global_step3"):
        found = read_checkpoint(path)
        assert (found.step, found.stage, found.world_size, found.parameters, found.precision) == (3, stage, 2, WEIGHTS, "bf16")
        assert (found.problems, found.strange, found.client_state) == ((), (), ("epoch",))
    assert main(["checkpoint", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["complete"] and told["bytes"] == sum(path.stat().st_size for path in (folder / "global_step3").iterdir())
    assert main(["checkpoint", str(folder)]) == 0
    assert f"parameters  {WEIGHTS}" in capsys.readouterr().out


def broken(folder: Path, how: str) -> None:
    """Damage a checkpoint as a full disk, a lost host or an interrupted copy does."""
    tag = folder / "global_step3"
    shard = next(path for path in tag.iterdir() if "rank_1" in path.name and "optim" in path.name)
    if how == "a shard is missing":
        shard.unlink()
    elif how == "a shard is cut off":
        shard.write_bytes(shard.read_bytes()[:2000])
    elif how == "a shard is empty":
        shard.write_bytes(b"")
    elif how == "no model states":
        for path in tag.glob("*model_states.pt"):
            path.unlink()


@pytest.mark.parametrize("how", ["a shard is missing", "a shard is cut off", "a shard is empty", "no model states"])
@pytest.mark.parametrize("stage", [2, 3])
def test_incomplete_checkpoint_is_reported_and_not_converted(
    stage: int, how: str, checkpoint: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = checkpoint(stage)
    broken(folder, how)
    assert main(["checkpoint", str(folder)]) == 1
    assert "NOT WHOLE" in capsys.readouterr().out
    assert main(["checkpoint", str(folder), "--fp32", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("latest", "said"),
    [("global_step9", "names global_step9, which does not exist"), ("../../etc", "global_step3"), (None, "global_step3")],
)
def test_dangling_latest_is_reported_or_not_needed(
    latest: str | None, said: str, checkpoint: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(2)
    (folder / "latest").unlink()
    if latest:
        (folder / "latest").write_text(latest)
    main(["checkpoint", str(folder)])
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_folder_that_is_no_checkpoint_gives_a_message(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert main(["checkpoint", str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


class Program:
    """What a pickle can do when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"open({str(self.path)!r}, 'w')",)


def test_looking_executes_nothing_and_a_malicious_pickle_is_not_converted(
    checkpoint: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, proof = checkpoint(2), tmp_path / "executed"
    shard = folder / "global_step3" / "mp_rank_00_model_states.pt"
    evil = pickle.dumps({"module": {}, "global_steps": 3, "dp_world_size": 2, "epoch": Program(proof)})
    pickle.loads(evil)
    assert proof.exists(), "torch.load would execute it"
    proof.unlink()
    with zipfile.ZipFile(shard, "w") as archive:
        archive.writestr("archive/data.pkl", evil)
    assert read_checkpoint(folder).strange == ("builtins.exec",)
    assert main(["checkpoint", str(folder)]) == 0
    assert "BEWARE" in capsys.readouterr().out
    assert main(["checkpoint", str(folder), "--fp32", str(tmp_path / "out")]) == 1
    assert not proof.exists() and not (tmp_path / "out").exists()


COMPARE = """\
# asks DeepSpeed
import sys, torch
from safetensors.torch import load_file
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
ours, theirs = load_file(sys.argv[1]), get_fp32_state_dict_from_zero_checkpoint(sys.argv[2])
assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
print("SAME", sum(t.numel() for t in ours.values()))
"""


def test_consolidated_weights_equal_the_checkpoints(checkpoint: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = checkpoint(3), tmp_path / "weights"
    assert main(["checkpoint", str(folder), "--fp32", str(out)]) == 0
    assert "of memory" in capsys.readouterr().err, "the cost is shown in advance"
    words = [sys.executable, "-c", COMPARE, str(out / "model.safetensors"), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert f"SAME {WEIGHTS}" in done.stdout, done.stderr[-2000:]
    assert main(["checkpoint", str(folder), "--fp32", str(out)]) == 2, "nothing is replaced"


def some(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path, "global_step3", step=3, stage=2, world_size=2, parameters=1000)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import pathlib, sys; pathlib.Path('half').write_text('x'); sys.exit('no space left on device')", "no space left"),
        ("import os; os.kill(os.getpid(), 9)", "ended with -9"),
        ("pass", "wrote nothing"),
    ],
)
def test_failed_conversion_leaves_nothing(program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_command", lambda *_all: [sys.executable, "-c", program])
    with pytest.raises(FileProblem, match=said):
        convert(Conversion("fp32"), some(tmp_path), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_file_gets_its_name_when_complete_and_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import pathlib, time; p = pathlib.Path('{0}'); p.mkdir(); (p / 'model').write_text('x' * 1000); print('50 %'); time.sleep(0.5)"
    )
    monkeypatch.setattr(conversion, "_command", lambda _how, _one, made: [sys.executable, "-c", program.format(made)])
    seen: list[tuple[str, int, bool]] = []
    convert(Conversion("fp32"), some(tmp_path), tmp_path / "out", lambda line, size: seen.append((line, size, (tmp_path / "out").exists())))
    assert (tmp_path / "out" / "model").stat().st_size == 1000
    assert ("50 %", 1000, False) in seen and not any(there for *_, there in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("change", "plan", "ranks", "code"),
    [
        ({}, "{zero_optimization: {stage: 2}}", 2, None),
        ({}, "{zero_optimization: {stage: 2}}", None, None),
        ({}, "{zero_optimization: {stage: 2}}", 4, "CK002"),
        ({}, "{zero_optimization: {stage: 3}}", 2, "CK003"),
        ({"problems": ("a shard is missing",)}, "{zero_optimization: {stage: 2}}", 2, "CK001"),
        ({"universal": True}, "{zero_optimization: {stage: 2}}", 2, "CK004"),
        ({"universal": True}, "{zero_optimization: {stage: 1}, checkpoint: {load_universal: true}}", 4, None),
        ({}, "{zero_optimization: {stage: 2}, checkpoint: {load_universal: true}}", 2, "CK004"),
    ],
)
def test_obstacles_for_a_plan_to_resume_are_reported_in_advance(
    change: dict[str, Any], plan: str, ranks: int | None, code: str | None, tmp_path: Path
) -> None:
    found = list(resume_findings(replace(some(tmp_path), **change), load(f"version: 1\ndeepspeed: {plan}\n"), ranks))
    assert [f.code for f in found] == ([code] if code else [])


@pytest.mark.parametrize(
    ("args", "made"),
    [
        (["--lr", "1"], ["--lr", "1", "--resume", "new"]),
        (["--resume", "old", "--lr", "1"], ["--lr", "1", "--resume", "new"]),
        (["--resume=old", "--resume", "--x"], ["--x", "--resume", "new"]),
    ],
)
def test_resume_arguments_replace_previous_ones(args: list[str], made: list[str]) -> None:
    assert with_arguments(args, ["--resume", "new"]) == made


@pytest.mark.parametrize(
    ("script", "restarts", "found"),
    [
        ("p.add_argument('--load-dir')", (), ("--load-dir", "/c")),
        ("p.add_argument('--resume', action='store_true')", (), ("--resume",)),
        ("p.add_argument('--resume')", ("--from", "{checkpoint}/x"), ("--from", "/c/x")),
        ("HfArgumentParser((TrainingArguments,)); train(resume_from_checkpoint=a)", (), ("--resume_from_checkpoint", "/c")),
        ("p.add_argument('--lr')", (), ()),
    ],
)
def test_resume_method_of_a_script_is_found(script: str, restarts: tuple[str, ...], found: tuple[str, ...]) -> None:
    facts = inspect_script(
        f"import deepspeed\nfrom transformers import HfArgumentParser, TrainingArguments\n{script}\ndeepspeed.initialize(args=p)\n"
    )
    plan = load("version: 1\ndeepspeed: {}\n").set("run.restarts.args", list(restarts))
    assert resume_arguments(plan, facts, "/c") == found
