"""A .deepspeed_env in the home or the job's folder reaches the ranks if DeepSpeed's launcher would read it, and every face says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.documents.plan_files import env_files_of, read_plan
from dstui.plan.env_file import parse_env_file
from dstui.render.target import Target
from tests.command import dstui
from tests.machines import NO_GPU

PLAN = """\
version: 1
job: {{script: train.py, args: [--deepspeed_config, "{{ds_config}}"], optimizer: script}}
cluster: {{hosts: {hosts}, launcher: {launcher}, env: {{MINE: plan}}}}
deepspeed: {{train_micro_batch_size_per_gpu: 1}}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job's folder; it and the home each have a .deepspeed_env."""
    home, folder = tmp_path / "home", tmp_path / "job"
    home.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("DS_ENV_FILE", raising=False)
    (home / ".deepspeed_env").write_text("NCCL_DEBUG=WARN\nHF_HOME = /data/hf \nMINE=home\n")
    (folder / ".deepspeed_env").write_text("NCCL_DEBUG=INFO\n")
    (folder / "train.py").touch()
    return folder


def written(job: Path, launcher: str, hosts: str = "{h1: 1, h2: 1}") -> Path:
    path = job / "plan.yaml"
    path.write_text(PLAN.format(launcher=launcher, hosts=hosts))
    return path


@pytest.mark.parametrize("launcher", ["pdsh", "ssh", "slurm", "torchrun", "null"])
def test_remote_ranks_get_what_deepspeeds_launcher_would_give(job: Path, launcher: str) -> None:
    plan = read_plan(written(job, launcher))
    env = Target(plan, NO_GPU, None, env_files_of(plan)).launch.environment()
    read = {name: env.get(name) for name in ("NCCL_DEBUG", "HF_HOME", "MINE")}
    taken = {"NCCL_DEBUG": "INFO", "HF_HOME": "/data/hf", "MINE": "plan"}
    assert read == (taken if launcher != "torchrun" else {"NCCL_DEBUG": None, "HF_HOME": None, "MINE": "plan"})


@pytest.mark.parametrize("words", [["check"], ["render"], ["--headless", "--dry-run"]])
def test_every_face_reports_what_happens_to_the_files(job: Path, words: list[str]) -> None:
    def finding_texts(launcher: str, hosts: str) -> str:
        ran = dstui(words[0], written(job, launcher, hosts), *words[1:])
        return " ".join((ran.stdout + ran.stderr).split())

    both = f"{job.parent}/home/.deepspeed_env and {job}/.deepspeed_env"
    assert f"{both}: every rank gets NCCL_DEBUG, HF_HOME, as by DeepSpeed's launcher; MINE stays" in finding_texts("ssh", "{h1: 1, h2: 1}")
    assert f"{both} is not read" in finding_texts("torchrun", "{h1: 1, h2: 1}")
    assert f"{both} is not read: DeepSpeed's launcher reads it, for ranks on other hosts only" in finding_texts("local", "{localhost: 1}")
    (job / ".deepspeed_env").write_text("# a comment\nA=1\n")
    assert f"{job}/.deepspeed_env: line 1 is not NAME=value: ignored here" in finding_texts("ssh", "{h1: 1, h2: 1}")


DEEPSPEED = """\
# asks the launcher
import sys
from types import SimpleNamespace
from deepspeed.launcher import runner
from deepspeed.launcher.multinode_runner import PDSHRunner
exports = {}
for line in open(sys.argv[1]).readlines():  # as runner.main does
    key, val = line.split("=", maxsplit=1)
    PDSHRunner.add_export(SimpleNamespace(exports=exports), key, val)
print(runner.DEEPSPEED_ENVIRONMENT_NAME, [path.replace(sys.argv[2], "~") for path in runner.DEEPSPEED_ENVIRONMENT_PATHS], exports)
"""


def test_names_and_values_equal_deepspeeds_exports(job: Path) -> None:
    home = job.parent / "home"
    ran = subprocess.run(
        [sys.executable, "-c", DEEPSPEED, str(home / ".deepspeed_env"), str(home)], capture_output=True, text=True, check=True
    )
    variables, bad = parse_env_file((home / ".deepspeed_env").read_text())
    assert not bad and ran.stdout.splitlines()[-1] == f".deepspeed_env ['~', '.'] {variables}"


def test_invalid_lines_are_counted_and_nothing_is_expanded() -> None:
    variables, bad = parse_env_file("A=$HOME\n\n# c\nno\nB C=1\nD=a=b\nE=x\x1b[2J\n")
    assert (variables, bad) == ({"A": "$HOME", "D": "a=b"}, [2, 3, 4, 5, 7])
    assert re.fullmatch(r"\$HOME", variables["A"])
