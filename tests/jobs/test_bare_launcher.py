"""The launcher without torch (tests/bare_launcher) is the installed one, and its ranks get all of DeepSpeed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dstui.jobs.supervisor.launch_command import free_port
from tests.launcher_path import BARE_LAUNCHER

WRITE_MODULES = """\
import atexit, json, os, sys
from pathlib import Path

def write():
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if name.partition(".")[0] in ("deepspeed", "torch")}
    Path(os.environ["MODULES"], f"{os.getpid()}.json").write_text(json.dumps([sys.argv[0], files]))

atexit.register(write)
"""

STAND_INS = {"torch", "deepspeed.utils", "deepspeed.utils.torch", "deepspeed.autotuning"}
"""Stub modules of the bare launcher, which have no file."""


@pytest.mark.launcher
def test_bare_launcher_is_the_installed_one_without_torch_and_ranks_have_all_of_deepspeed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WRITE_MODULES)
    (tmp_path / "train.py").write_text("import deepspeed, sys\ndeepspeed.initialize, deepspeed.zero.Init\nsys.exit(7)\n")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{BARE_LAUNCHER}", "MODULES": str(tmp_path), "DS_ACCELERATOR": "cpu"}
    words = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "1", "--master_port", str(free_port()), "train.py"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    loaded = {Path(program).name: files for program, files in map(json.loads, (file.read_text() for file in tmp_path.glob("*.json")))}
    installed = find_spec("deepspeed")
    assert installed is not None and installed.submodule_search_locations
    root = installed.submodule_search_locations[0]
    for program in ("runner.py", "launch.py"):
        files = loaded[program]
        assert "torch._C" not in files
        assert {name for name, file in files.items() if file is None} == STAND_INS
        assert all(file.startswith(root) for file in files.values() if file)
    assert loaded["train.py"]["deepspeed.runtime.engine"].startswith(root) and "torch._C" in loaded["train.py"]
