"""Scripts with and without `dstui run`: output, exit status and environment of the ranks are equal.

pytest tests/long/test_run_same.py -n0 -s
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.releases import accelerate

PROGRAM = """\
import json, os, sys
rank = os.environ.get("RANK", "-")
json.dump(dict(os.environ), open(f"env-{sys.argv[1]}-{rank}-{os.environ['MODE']}", "w"))
os.write(1, f"RANK {rank} {sys.argv[2:]} {os.path.basename(os.getcwd())}\\n".encode())  # at once: ranks share the launcher's output
sys.exit(int(os.environ.get("FAIL", "0")) if rank == "1" else 0)
"""
OURS = re.compile(
    r"DSTUI_|PYTHONUNBUFFERED$|MASTER_PORT$|MODE$|TORCHELASTIC_RUN_ID$|TORCHELASTIC_ERROR_FILE$|OMP_NUM_THREADS$|OLDPWD$|_$|SHLVL$|LOCAL_SIZE$|MASTER_ADDR$"
)
"""Variables that dstui adds or that differ between runs; localhost by another name; LOCAL_SIZE, which DeepSpeed wants and torchrun lacks.
"""
SCRIPTS = {
    "deepspeed": "deepspeed --num_gpus 2 t.py A --x 'a b'",
    "include": "LOCAL_SIZE=2 deepspeed --include localhost:0,1 --master_port 29611 t.py A",  # otherwise one slot per NUMA node; dstui's has it
    "no local rank": "deepspeed --num_gpus 2 --no_local_rank t.py A --strict",
    "module": "deepspeed --num_gpus 2 --module t A m",
    "torchrun": "torchrun --nproc_per_node 2 --master_port 29612 t.py A --y",
    "standalone": "torchrun --standalone --nproc_per_node 2 t.py A",
    "python -m": "python -m torch.distributed.run --nproc_per_node 2 --master_port 29613 t.py A",
    "accelerate": "accelerate launch --use_deepspeed --num_processes 2 --main_process_port 29614 t.py A --z",
    "variables": "export X_ONE=1 X_TWO='two words'; N=2; CMD=\"deepspeed --num_gpus $N t.py A\"; eval $CMD",
    "prefix": "X_ONE=1 deepspeed --num_gpus 2 t.py A",
    "folder": "mkdir -p sub && cp t.py sub && cd sub && deepspeed --num_gpus 2 t.py A",
    "two launches": "deepspeed --num_gpus 2 t.py A first; deepspeed --num_gpus 2 t.py B second",
    "a loop": "for s in 1 2; do deepspeed --num_gpus 2 t.py A$s --seed $s; done",
    "in the background": "deepspeed --num_gpus 2 --master_port 29615 t.py A & wait",
    "exec": "echo before; exec deepspeed --num_gpus 2 t.py A",
    "a failing rank": "FAIL=3 deepspeed --num_gpus 2 t.py A",
    "a failing rank of torchrun": "FAIL=3 torchrun --nproc_per_node 2 t.py A",
    "what follows a failure": "set -e; FAIL=3 deepspeed --num_gpus 2 t.py A; echo never",
    "or": "FAIL=3 deepspeed --num_gpus 2 t.py A || echo mended; exit 5",
    "a function and a trap": "trap 'echo bye' EXIT; go() { deepspeed --num_gpus 2 t.py A \"$@\"; }; go 'x y'",
}


def accelerate_program(folder: Path) -> Path:
    """Return a folder with accelerate's program for this interpreter: the one that pip wrote names the interpreter that installed it."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "accelerate").write_text(f"#!{sys.executable}\nfrom accelerate.commands.accelerate_cli import main\n\nmain()\n")
    (programs / "accelerate").chmod(0o755)
    return programs


def run(folder: Path, text: str, mode: str, *before: str) -> tuple[int, list[str], float]:
    path, beside = [str(Path(sys.executable).parent), "/usr/bin", "/bin"], [os.environ.get("PYTHONPATH", "")]
    if "accelerate" in text:
        path.insert(0, str(accelerate_program(folder)))
        beside.insert(0, str(accelerate()))
    modules = {"PYTHONPATH": found} if (found := os.pathsep.join(filter(None, beside))) else {}
    env = {**os.environ, **modules, "DS_ACCELERATOR": "cpu", "MODE": mode, "PATH": os.pathsep.join(path)}
    begun = time.perf_counter()
    done = subprocess.run([*before, "bash", "-c", text], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("RANK", "before", "never", "mended", "bye"))]
    return done.returncode, sorted(lines), time.perf_counter() - begun


@pytest.mark.usefixtures("full_deepspeed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_behaves_the_same_under_dstui_run(name: str, tmp_path: Path) -> None:
    text = SCRIPTS[name]
    if shutil.which("deepspeed", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("there is no deepspeed program beside this interpreter")
    (tmp_path / "t.py").write_text(PROGRAM)
    plain = run(tmp_path, text, "plain")
    ours = run(tmp_path, text, "dstui", sys.executable, "-m", "dstui", "run", "--no-check", "--")
    assert ours[:2] == plain[:2]
    files = sorted(tmp_path.rglob("env-*-plain"))
    assert files
    for file in files:
        one, other = (json.loads(path.read_text()) for path in (file, file.with_name(file.name.replace("-plain", "-dstui"))))
        differ = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key) and not OURS.match(key)}
        assert differ <= {"PATH"}, {key: (one.get(key), other.get(key)) for key in differ}
    print(f"\n{name}: {plain[2]:.1f} s, under dstui run {ours[2]:.1f} s ({ours[2] / plain[2]:.2f}x)")
