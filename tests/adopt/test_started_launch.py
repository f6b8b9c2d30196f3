"""A Python program that starts a launcher is read as that launch; words that only a run shows are not guessed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dstui.adopt.started_launch import started_launch
from tests.command import dstui

LAUNCHES = {
    "a list": ("cmd = ['deepspeed', '--num_gpus=4', 't.py', '--name', 'a b']\nsubprocess.run(cmd)", "deepspeed --num_gpus=4 t.py --name 'a b'"),
    "joined lists": ("N = os.getenv('N', '1')\nsubprocess.call(['deepspeed', '--num_gpus', N] + ['t.py'] + X.split())", 'deepspeed --num_gpus "${N:-1}" t.py ${X}'),
    "a text": ("os.system(f'torchrun --nproc_per_node {n} t.py > log')", "torchrun --nproc_per_node ${n} t.py > log"),
    "a folder": ("subprocess.Popen(['accelerate', 'launch', 't.py'], cwd='src')", "(cd src && accelerate launch t.py)"),
    "its own interpreter": ("subprocess.run([sys.executable, '-m', 'deepspeed.launcher.runner', 't.py'])", "python -m deepspeed.launcher.runner t.py"),
    "a shell": ("subprocess.run('''\ncd a\ndeepspeed \\\\\n  t.py\n''', shell=True)", "cd a; deepspeed    t.py"),
    "words of a session": ("session.run('torchrun', '--nproc_per_node', '2', 't.py', env={'A': 'b'})", "A=b torchrun --nproc_per_node 2 t.py"),
    "a text of invoke": ("c.run(f'torchrun --nproc_per_node {n} t.py')", "torchrun --nproc_per_node ${n} t.py"),
    "a step of metaflow": (
        "from metaflow import current, environment, kubernetes\n@environment(vars={'A': 'b'})\n@kubernetes(gpu=2)\ndef train(self):\n"
        "    current.deepspeed.run(entrypoint='t.py', entrypoint_args={'x': '1'}, deepspeed_args=['--bind_cores_to_rank'])\n"
        "def start(self):\n    self.next(self.train, num_parallel=4)\n",
        "A=b deepspeed --bind_cores_to_rank --num_nodes 4 --num_gpus 2 t.py --x 1",
    ),
}  # fmt: skip
HEAD = "import os, subprocess, sys\n"


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_of_a_program_stands_on_its_line(name: str) -> None:
    text, command = LAUNCHES[name]
    found = started_launch(HEAD + text)
    assert found.text.strip("\n") == command and not found.unclear
    assert found.text.count("\n") <= (HEAD + text).count("\n") + 1


@pytest.mark.parametrize(
    "change", ["cmd += ['--x']", "cmd.append('--x')", "cmd[1] = 'u.py'", "cmd = cmd + ['--x']", "for cmd in many: pass", "def f(cmd): pass"]
)
def test_command_that_changes_is_not_guessed(change: str) -> None:
    found = started_launch(f"{HEAD}cmd = ['deepspeed', 't.py']\n{change}\nsubprocess.run(cmd)")
    assert (found.text, found.unclear) == ("", 4)


@pytest.mark.parametrize(
    "text",
    [
        "cmd = ['srun', '--nodes=2', 'torchrun', str(worker)]\nif one:\n    cmd = ['torchrun', str(worker)]\nsubprocess.run(cmd)",
        "cmd = ['nice', '-n', '15', 'torchrun', 't.py', *more(1)]\nsubprocess.Popen(cmd)",
        "if many:\n    cmd = f'python -m torch.distributed.run t.py {n}'\nelse:\n    cmd = 'python t.py'\ncmd += ' &'\nos.system(cmd)",
        "cmd = [sys.executable, '-m', 'torch.distributed.launch', *more(1)]\nsubprocess.run(cmd)",
    ],
)
def test_launch_behind_another_program_or_in_a_branch_is_named_by_its_line(text: str) -> None:
    found = started_launch(HEAD + text)
    assert (found.text, found.unclear) == ("", text.count("\n") + 2)


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['pip', 'install', 'deepspeed'])",
        "subprocess.run(['pip', 'install', *more, 'deepspeed'])",
        "os.system('echo deepspeed t.py')",
        "x0 = ['deepspeed', 't.py']\n" + "".join(f"x{n + 1} = x{n} + x{n}\n" for n in range(60)) + "subprocess.run(['a'] + x60)",
        "x = x + ['deepspeed']\nsubprocess.run(['a', *x])",
    ],
)
def test_other_programs_start_no_launch(text: str) -> None:
    found = started_launch(HEAD + text)
    assert (found.text, found.unclear) == ("", 0)


def test_what_stands_around_a_launch_is_noted() -> None:
    found = started_launch(f"{HEAD}if gpus > 1:\n    subprocess.run(['torchrun', 't.py'], env={{'A': '1'}})\n")
    assert found.notes == (
        "line 3: env= of the call is not carried over: write its variables under cluster.env",
        "the launch in line 3 is under the condition in line 2, which is not followed",
    )
    assert not started_launch(f"{HEAD}if __name__ == '__main__':\n    subprocess.run(['torchrun', 't.py'])\n").notes


def test_launch_that_another_function_gets_is_left_to_a_run() -> None:
    assert started_launch("import os\nrun_cmd(f'accelerate launch --n {n} t.py')").unclear == 2
    assert not started_launch("import os\nprint('torchrun t.py starts it')\n'torchrun t.py'").unclear


def test_import_of_a_program_is_the_launch_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(HEAD + LAUNCHES["a list"][0])
    done = dstui("import", "main.py", cwd=tmp_path)
    assert done.returncode == 0 and "script: t.py" in done.stdout and "num_gpus: 4" in done.stdout
    (tmp_path / "main.py").write_text(HEAD + "cmd = ['deepspeed']\ncmd += more()\nsubprocess.run(cmd)")
    refused = dstui("import", "main.py", cwd=tmp_path)
    assert refused.returncode == 2 and "line 4" in refused.stderr and "dstui run --hold -- python main.py" in refused.stderr


def test_configuration_that_a_script_builds_is_noted(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import deepspeed\ndeepspeed.initialize(model=m, config={'train_batch_size': 8})\n")
    (tmp_path / "run.sh").write_text("export B=1 A=2 D=3 C=4\ndeepspeed t.py\n")
    done = dstui("import", "run.sh", cwd=tmp_path)
    assert "t.py has its DeepSpeed configuration in itself (line 2: " in done.stderr and done.returncode == 0
    env, _, section = done.stdout.partition("env:")[2].partition("deepspeed:")
    assert re.findall(r"(\w): ['\"]?\d", env) == ["B", "A", "D", "C"] and "train_batch_size: 8" in section


def test_launch_in_the_python_of_a_notebook_is_read_or_named(tmp_path: Path) -> None:
    def book(code: str) -> str:
        cells = [{"cell_type": "code", "source": ["!pip install x\n", "import subprocess, shlex\n", code]}]
        (tmp_path / "n.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
        ran = dstui("import", "n.ipynb", cwd=tmp_path)
        return ran.stdout + ran.stderr

    assert "script: t.py" in book("subprocess.run(['torchrun', '--nproc_per_node=2', 't.py'])")
    unclear = book("cmd = f'accelerate launch t.py --n {cfg[\"n\"]}'\nsubprocess.Popen(shlex.split(cmd))")
    assert "cmd = f'accelerate launch t.py" in unclear and "only a run shows" in unclear
