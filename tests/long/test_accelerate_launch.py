"""Findings on accelerate YAML match the behaviour of the real accelerate, installed beside the older releases (see test_differential)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dstui.check.accelerate import check_accelerate
from tests import releases

FOLDER = releases.FOLDER / "accelerate"
SCRIPT = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
STUB = '#!/bin/sh\necho deepspeed "$@"\n'
BASE = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 2, "main_process_port": 0}
TWO = {"num_machines": 2, "main_process_ip": "127.0.0.1", "main_process_port": 29611, "machine_rank": 2, "same_network": True}


@pytest.fixture(scope="module", autouse=True)
def accelerate() -> Path:
    """Return its folder, or skip if it is not available."""
    return releases.accelerate()


def launched(config: dict[str, object], folder: Path, seconds: float = 90) -> str:
    """Return what `accelerate launch` prints with this configuration, up to a time limit."""
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    (folder / "s.py").write_text(SCRIPT)
    (folder / "deepspeed").write_text(STUB)
    (folder / "deepspeed").chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(FOLDER), "DS_ACCELERATOR": "cpu", "PATH": f"{folder}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "c.yaml", "s.py"]
    try:
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, check=False).stdout
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode() + "TIME OVER"


def severities(config: dict[str, object]) -> list[str]:
    return [f.severity for f in check_accelerate(config) if f.code == "AC059"]


def test_machine_rank_of_a_single_machine_is_not_read(tmp_path: Path) -> None:
    config = {**BASE, "machine_rank": 1, "deepspeed_config": {"zero_stage": 2}}
    assert severities(config) == ["info"]
    assert "rank 1 of 2" in launched(config, tmp_path)


def test_machine_rank_is_not_read_with_pdsh(tmp_path: Path) -> None:
    config = {**BASE, **TWO, "deepspeed_config": {"zero_stage": 2, "deepspeed_multinode_launcher": "pdsh", "deepspeed_hostfile": "hosts"}}
    assert severities(config) == ["info"]
    said = launched(config, tmp_path)
    assert said.startswith("deepspeed --hostfile hosts") and "node_rank" not in said


def test_ranks_wait_for_ever_for_a_missing_machine(tmp_path: Path) -> None:
    config = {**BASE, **TWO, "deepspeed_config": {"zero_stage": 2, "deepspeed_multinode_launcher": "standard"}}
    assert severities(config) == ["error"]
    assert launched(config, tmp_path, 25) == "TIME OVER"
