"""launch.sh of `dstui render`, used without dstui on the test hosts; tests/long/test_rendered_trains.py trains with it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from farm import Farm

from tests.launcher_path import BARE_LAUNCHER

PLAN = """\
version: 1
job: {script: rank.py, args: ["{ds_config}"]}
cluster: {hosts: {h1: 1, h2: 1}, env: {MINE: 'a "$HOME" b', PYTHONPATH: BARE_LAUNCHER}}
deepspeed: {train_micro_batch_size_per_gpu: 2}
""".replace("BARE_LAUNCHER", BARE_LAUNCHER)
SCRIPT = """\
import json, os, socket, sys
config = json.load(open(next(word for word in sys.argv if word.endswith(".json"))))
found = ("FOUND", os.environ["RANK"], socket.gethostname(), str(config["train_micro_batch_size_per_gpu"]), os.environ["MINE"])
os.write(1, (" ".join(found) + "\\n").encode())  # at once: two hosts write, and print would in pieces
"""


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return launch.sh in a rendered folder; the current folder is another one, with files that DeepSpeed must not use."""
    (tmp_path / "rank.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    command = [sys.executable, "-m", "dstui", "render", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "hostfile").write_text("nowhere slots=8\n")
    (folder / ".deepspeed_env").write_text("# DeepSpeed dies of a comment\n")
    monkeypatch.chdir(folder)
    return Path(shutil.move(tmp_path / "out", tmp_path / "it's moved"), "launch.sh")


def test_rendered_folder_starts_every_rank_from_another_machine_and_folder(farm: Farm, rendered: Path) -> None:
    ran = farm.run("login", "sh", str(rendered), timeout=300)
    found = sorted(re.findall(r"FOUND (.*)", ran.stdout))
    assert (ran.returncode, found) == (0, ['0 h1 2 a "$HOME" b', '1 h2 2 a "$HOME" b']), ran.stdout + ran.stderr


def test_host_unknown_to_the_script_is_refused(farm: Farm, rendered: Path) -> None:
    ran = farm.run("login", "sh", str(rendered), "h9")
    assert ran.returncode == 2 and "there is no host h9: h1 h2" in ran.stderr
