"""Real checkpoints, written once by two CPU ranks and kept beside the older releases."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.releases import FOLDER

HERE = Path(__file__).parent
RUNNER = ("-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--no_local_rank", "--master_port")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that copies the checkpoint of a ZeRO stage, to be damaged or converted."""

    return lambda stage: copy_checkpoint(stage, tmp_path / f"stage{stage}")


def copy_checkpoint(stage: int, target: Path) -> Path:
    """Copy the checkpoint of a ZeRO stage, which is trained once and kept, to a folder; return it."""
    kept = FOLDER / "checkpoints" / f"stage{stage}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes want it too
        if not (kept / "latest").is_file():
            _train(stage, kept)
    return Path(shutil.copytree(kept, target, dirs_exist_ok=True))


def _train(stage: int, kept: Path) -> None:
    new = kept.with_name(f"{kept.name}.{os.getpid()}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "2", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *RUNNER, port, str(HERE / "save.py"), str(stage), str(new)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    shutil.rmtree(kept, ignore_errors=True)
    new.rename(kept)
