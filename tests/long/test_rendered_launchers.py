"""launch.sh of every launcher on two test hosts, with the real pdsh, Open MPI, MPICH and torchrun: what the ranks find."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import farm as farming
import pytest

PLAN = """\
version: 1
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
cluster: {hosts: {h1: 1, h2: 1}, master_port: 29477, env: {MINE: 'a "$HOME" b'}, launcher: LAUNCHER}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""
SCRIPT = """\
import os, socket
rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
print("FOUND", rank, socket.gethostname(), os.environ["MASTER_ADDR"], repr(os.environ["MINE"]), os.environ["DSTUI_DS_CONFIG"], flush=True)
"""
QUOTED, WHOLE = '\'"a "$HOME" b"\'', "'a \"$HOME\" b'"
FOUND = {"pdsh": WHOLE, "openmpi": QUOTED, "mpich": QUOTED, "torchrun": WHOLE, "torchrun, launcher_args: [--rdzv-backend, c10d]": WHOLE}
PROGRAMS = {"pdsh": "pdsh", "openmpi": "mpirun.openmpi", "mpich": "mpirun.mpich"}


def path_for(launcher: str, folder: Path) -> str:
    """Return a PATH on which `mpirun` is the launcher's own: both may be installed, and Hydra looks for its proxy beside itself."""
    wanted = {"openmpi": {"mpirun": "mpirun.openmpi"}, "mpich": {"mpirun": "mpirun.mpich", "hydra_pmi_proxy": "hydra_pmi_proxy"}}
    folder.mkdir()
    for name, program in wanted.get(launcher, {}).items():
        (folder / name).symlink_to(str(shutil.which(program)))
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("launcher", FOUND)
def test_ranks_of_every_launcher_find_what_the_plan_gives_them(launcher: str, farm: farming.Farm, tmp_path: Path) -> None:
    if not shutil.which(PROGRAMS.get(launcher, "sh")):
        pytest.skip(f"{PROGRAMS[launcher]} is not installed")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN.replace("LAUNCHER", launcher))
    command = [sys.executable, "-m", "dstui", "render", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env = {**os.environ, **root, "PATH": path_for(launcher, tmp_path / "bin")}
    ran = farm.run("login", "sh", str(tmp_path / "out/launch.sh"), env=env, timeout=300)
    found = sorted(re.findall(r"FOUND (\d) (\w+) (\w+) (.*) (\S+)", ran.stdout))
    value, config = FOUND[launcher], f"{tmp_path}/out/ds_config.json"
    assert (ran.returncode, found) == (0, [("0", "h1", "h1", value, config), ("1", "h2", "h1", value, config)]), ran.stdout + ran.stderr
