"""Descriptions of jobs, debug configurations and pages are read as the launches that they start."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.every_kind import FilesBeside, imported
from dstui.adopt.shell.job_files import job_as_shell
from dstui.adopt.shell.shell_state import to_display_text
from dstui.adopt.signs import kind_of
from dstui.plan import load
from tests.adopt.shell_launches import read
from tests.command import dstui

KUBERNETES = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  containers:
    - name: pytorch
      image: x/deepspeed:1
      workingDir: src
      env: [{name: NCCL_DEBUG, value: INFO}, {name: TOKEN, valueFrom: {}}]
      command: %s
      args: %s
"""
DEBUG = """{ // of VS Code
  "configurations": [
    {"name": "a", "request": "launch", "module": "deepspeed.launcher.runner", /* x */
     "args": ["--num_gpus=2", "${workspaceFolder}/t.py", "--url", "http://h//i",],
     "env": {"A": "1"}},
  ]
}
"""
JOBS = {
    "a list of words": (KUBERNETES % ('["torchrun"]', '["--nnodes=$(WORLD)", "t.py", "a b"]'), "torchrun --nnodes=$WORLD t.py a b"),
    "words of a shell": (KUBERNETES % ("[/bin/bash, -lc]", "['cd x; deepspeed t.py --n 3']"), "deepspeed t.py --n 3"),
    "a block": (KUBERNETES % ("[sh, -c]", "\n        - |\n          deepspeed t.py \\\n            --n {{workflow.n_steps}}"), "deepspeed t.py --n $N_STEPS"),
    "options before the text": (KUBERNETES % ("[bash, -c, --]", "[deepspeed t.py]"), "deepspeed t.py"),
    "keys with capitals": ('Entrypoint: "torchrun t.py\n"\nArgs: "--x 1"\nEnvs: [{Name: NCCL_DEBUG, Value: INFO}]\n', "torchrun t.py --x 1"),
    "dstack": ("type: task\nenv:\n  - NCCL_DEBUG=INFO\ncommands:\n  - cd src\n  - |\n    torchrun \\\n      t.py\n", "torchrun t.py"),
    "SkyPilot": ("envs:\n  NCCL_DEBUG: INFO\nsetup: pip install x\nrun: |\n  deepspeed --num_gpus 8 t.py\n", "deepspeed --num_gpus 8 t.py"),
    "Determined": (
        "resources: {slots_per_trial: 2}\nentrypoint: >-\n  python -m determined.launch.deepspeed\n  python t.py\n  --deepspeed ds.json\n",
        "deepspeed --num_gpus=2 t.py --deepspeed ds.json",
    ),
    "inputs of Azure ML": (
        "inputs:\n  lr: {type: number, default: 1e-5}\n  data: {type: uri_file}\n"
        "command: >-\n  torchrun t.py\n  --data '${{inputs.data}}'\n  $[[--lr '${{inputs.lr}}']]\n",
        "torchrun t.py --data $DATA --lr 1e-5",
    ),
    "pods of a PyTorchJob": (
        "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 3\n      x:\n"
        "        command: [sh, -c, 'torchrun --nnodes=$PET_NNODES t.py']\n    Master: {replicas: 1}\n",
        "torchrun --nnodes=4 t.py",
    ),
    "numbers of SkyPilot": (
        "num_nodes: 2\nresources:\n  accelerators: H100:4\nrun: |\n  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE t.py\n",
        "torchrun --nnodes 2 --nproc_per_node 4 t.py",
    ),
    "MosaicML": ("run_name: a\nimage: x\ncluster: r1z1\ncommand: |\n  accelerate launch --num_machines 2 t.py\n", "accelerate --num_machines 2 t.py"),
    "GitLab": (
        "variables: {NCCL_DEBUG: INFO}\ntest:\n  script:\n    - pip install x\n    - torchrun --nproc_per_node=8 -m pytest\n  only:\n    - main\n",
        "torchrun --nproc_per_node=8 -m pytest",
    ),
    "GitHub": (
        "env:\n  KEY: ${{ secrets.KEY }}\njobs:\n  a:\n    env: {NCCL_DEBUG: INFO}\n    steps:\n      - uses: x\n      - run: |\n          torchrun t.py\n",
        "torchrun t.py",
    ),
    "docker compose": (
        "services:\n  train:\n    image: x\n    entrypoint: deepspeed /workspace/t.py\n    environment:\n      - NCCL_DEBUG=INFO\n",
        "deepspeed /workspace/t.py",
    ),
    "VESSL": (
        "name: a\nresources: {cluster: x}\nrun:\n  - command: accelerate launch t.py --model $M\nenv: {NCCL_DEBUG: INFO, M: big, KEY: {secret: x}}\n",
        "accelerate t.py --model big",
    ),
    "Azure ML": (
        "command: python t.py --x 1\ndistribution:\n  type: pytorch\n  process_count_per_instance: 4\nresources:\n  instance_count: 2\n",
        "torchrun --nnodes=2 --nproc_per_node=4 t.py --x 1",
    ),
    "VS Code": (DEBUG, "deepspeed --num_gpus=2 t.py --url http://h//i"),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_launch_of_a_job(name: str) -> None:
    text, command = JOBS[name]
    assert kind_of(text, "launch.json" if name == "VS Code" else "job.yaml") == "command"
    launch = read(text).launches[0]
    assert " ".join(map(to_display_text, (launch.launcher, *launch.words))) == command
    assert ("NCCL_DEBUG" in text) == (launch.env.get("NCCL_DEBUG") == "INFO")
    first = command.split()[0].replace("torchrun", "t")
    assert first[:4] in text.split("\n")[launch.line - 1]


TASKS = {
    "tox.ini": "[testenv:a]\nsetenv =\n    A = 1\ncommands =\n    pip install x\n    torchrun t.py {posargs:--x 1}\n[other]\ncommands = lint\n",
    "pixi.toml": '[tasks]\nlint = "ruff x"\nt = { cmd = "torchrun t.py --x 1", env = { A = "1" } }\n',
    "pyproject.toml": '[tool.poe.tasks.t]\ncmd = """\ntorchrun t.py \\\\\n --x 1\n"""\nenv = { A = 1 }\n',
    "justfile": 'n := "1"\nexport A := "1"\nlist:\n    @just --list\nt script="t.py" *args:\n    @torchrun {{script}} --x {{n}} {{args}}\n',
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_launch_of_a_task(name: str) -> None:
    if name.endswith(".toml"):
        pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    assert kind_of(TASKS[name], name) == "command"
    (launch,) = read(TASKS[name], script=name).launches
    assert (launch.launcher, launch.words, launch.env.get("A")) == ("torchrun", ("t.py", "--x", "1"), "1")
    assert "torchrun" in TASKS[name].split("\n")[launch.line - 1]


@pytest.mark.parametrize("table", ["", "[deepspeed]\n"])
def test_configuration_in_toml_is_a_plan(table: str) -> None:
    pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    text, beside = f"{table}train_batch_size = 8\nbf16 = {{enabled = true}}\n", FilesBeside(lambda _name: None, lambda _name: None)
    assert kind_of(text, "ds.toml") == "ds_config"
    assert dict(load(imported("ds_config", text, "ds.toml", (), beside).text).deepspeed) == {
        "train_batch_size": 8,
        "bf16": {"enabled": True},
    }
    with pytest.raises(ConfigError, match="nor a key of DeepSpeed"):
        imported("ds_config", "[other]\na = 1\n", "x.toml", (), beside)


def test_scripts_plans_and_broken_yaml_describe_no_job() -> None:
    for text in (
        "#!/bin/sh\ncommand: x\n",
        "cd x\ndeepspeed t.py\n",
        "command: [a\n",
        "a: &a [*a]\ncommand: b\n",
        "command:\n  - {}\n",
        "env: [{? [a] : b}]\ncommand: []",
        "{" * 3000 + "command: x",
    ):
        assert job_as_shell(text) is None  # fmt: skip


PAGE = """# A page: with `deepspeed x.py` > in prose
```json
{"name": "ds_config"}
```
Then (run):
```bash
export A=1
deepspeed t.py --deepspeed
```
1. or, in a manifest
   ```yaml
   run: torchrun u.py
   ```
```
tree (of files
```
"""


def test_blocks_of_a_page_are_read_without_its_prose(tmp_path: Path) -> None:
    shell = read(PAGE)
    assert [(one.launcher, one.words[0], one.line) for one in shell.launches] == [("deepspeed", "t.py", 8), ("torchrun", "u.py", 12)]
    (tmp_path / "README.md").write_text(f"[![x](y)](z)\n{PAGE}")
    done = dstui("import", "README.md", cwd=tmp_path)
    assert done.returncode == 0 and "script: t.py" in done.stdout and "2 launches" in done.stderr and "is a page" in done.stderr
