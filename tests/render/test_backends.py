"""What DeepSpeed's launcher does with the rendered command equals what its runner classes build for the Plan's hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from dstui.plan import load
from dstui.plan.launchers import ALL
from dstui.render.artifacts import artifacts
from dstui.render.target import Target
from tests.launcher_path import BARE_LAUNCHER
from tests.machines import NO_GPU

Both = Callable[[str], tuple[list[str], list[str], dict[str, Any]]]
ASK = """# asks the launcher
import json, os, sys
from argparse import Namespace
import deepspeed.launcher.runner as runner
from deepspeed.launcher import multinode_runner as classes

del os.environ["PYTHONPATH"]  # by which this process has found them

def answer(asked):
    os.chdir(asked["workdir"])
    runner.DEEPSPEED_ENVIRONMENT_NAME = asked["env_file"]
    started = []

    class Popen:
        returncode = 0
        def __init__(self, command, env): started.append(command)
        def wait(self): pass

    runner.subprocess.Popen = Popen
    runner.subprocess.check_call = lambda *words, **more: 0
    runner.signal.signal = lambda *words: None
    classes.shutil.which = lambda name: name
    classes.subprocess.check_output = lambda *words: b"MVAPICH2-GDR"
    runner.main(asked["options"])

    kind = {"pdsh": classes.PDSHRunner, "openmpi": classes.OpenMPIRunner, "mpich": classes.MPICHRunner,
            "impi": classes.IMPIRunner, "mvapich": classes.MVAPICHRunner}[asked["launcher"]]
    nothing = dict(include="", exclude="", num_nodes=-1, num_gpus=-1, launcher_args="", module=False, no_python=False, save_pid=False,
                   no_local_rank=False, enable_each_rank_log="None", venv_script=None, ssh_port=None, bind_cores_to_rank=False)
    args = Namespace(**nothing, user_script="train.py", user_args=asked["args"], hostfile=asked["hostfile"],
                     launcher=asked["launcher"], master_addr=asked["master"], master_port=asked["port"])
    pool = {host: len(slots) for host, slots in asked["slots"].items()}
    more = () if asked["launcher"] == "pdsh" else (pool,)
    built = kind(args, runner.encode_world_info(asked["slots"]), *more)
    for name, value in {"PYTHONPATH": asked["workdir"], **asked["env"]}.items():
        built.add_export(name, value)
    command = built.get_cmd({}, asked["slots"])
    print("ANSWER" + json.dumps([started[0], command[0] if asked["launcher"] == "pdsh" else command]), flush=True)

for line in sys.stdin:  # each in a fork: importing DeepSpeed takes seconds
    if os.fork() == 0:
        answer(json.loads(line))
        os._exit(0)
    os.wait()
    print("END", flush=True)
"""

pytestmark = pytest.mark.xdist_group("deepspeed's launcher")


@pytest.fixture(scope="module")
def launcher_child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Start DeepSpeed's launcher in a mode in which it prints what it would start."""
    clean = {"PYTHONPATH": BARE_LAUNCHER, "PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home")), "DS_ACCELERATOR": "cpu"}
    with subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean) as child:
        yield child


@pytest.fixture
def both(launcher_child: subprocess.Popen[str], tmp_path: Path) -> Both:
    """Return a function that gives what DeepSpeed starts for the rendered command, what its runner class builds, and the Plan's facts."""
    return partial(_both, launcher_child, tmp_path)


def _both(child: subprocess.Popen[str], tmp_path: Path, cluster: str) -> tuple[list[str], list[str], dict[str, Any]]:
    text = f"version: 1\njob: {{script: train.py, args: [--config, '{{ds_config}}', 'a b']}}\ncluster: {cluster}\ndeepspeed: {{}}\n"
    target = Target(load(text, base=str(tmp_path)), NO_GPU)
    folder = tmp_path / "files"
    folder.mkdir()
    config = str(folder / "ds_config.json")
    for artifact in artifacts(target, config):
        (folder / artifact.name).write_text(artifact.text)
    spec = target.launch
    facts = {
        "workdir": str(tmp_path),
        "options": spec.argv(config)[3:],
        "launcher": spec.launcher,
        "env_file": spec.launcher_environment(config)["DS_ENV_FILE"],
        "env": spec.environment(config),
        "args": ["--config", config, "a b"],
        "hostfile": str(folder / "hostfile"),
        "master": spec.master_addr,
        "port": spec.master_port,
        "slots": {host: list(slots) for host, slots in spec.slots.items()},
    }
    assert child.stdin and child.stdout
    child.stdin.write(json.dumps(facts) + "\n")
    child.stdin.flush()
    lines = list(takewhile(lambda line: not line.startswith("END"), child.stdout))
    answers = [line.removeprefix("ANSWER") for line in lines if line.startswith("ANSWER")]
    assert answers, lines
    started, built = json.loads(answers[0])
    return started, built, facts


@pytest.mark.parametrize("launcher", [launcher.name for launcher in ALL if launcher.backend])
def test_deepspeed_starts_what_its_runner_builds_for_the_hosts(launcher: str, both: Both) -> None:
    started, built, _ = both(f"{{hosts: {{h1: 2, h2: 2}}, launcher: {launcher}, master_port: 29511, env: {{NCCL_DEBUG: INFO}}}}")
    assert started == built
    assert started[0] == ("pdsh" if launcher == "pdsh" else "mpirun")
    words = " ".join(started)
    assert "NCCL_DEBUG" in words and "29511" in words and "DSTUI_DS_CONFIG" in words
    assert "DS_ACCELERATOR" not in words, "the launching machine has no GPU, which says nothing about the hosts"


def test_filter_that_leaves_one_host_starts_that_host(both: Both) -> None:
    started, built, _ = both("{hosts: {h1: 2, h2: 2}, launcher: pdsh, include: 'h2:1'}")
    assert started == built
    assert started[started.index("-w") + 1] == "h2" and "--master_addr=h2" in started


def test_shell_metacharacters_reach_pdsh_ranks_unchanged(both: Both) -> None:
    nasty = 'a "b" $HOME `id` \\ c'
    started, _, _ = both(f"{{hosts: {{h1: 1}}, launcher: pdsh, env: {{NASTY: {json.dumps(nasty)}}}}}")
    exports = next(word for word in started if word.startswith("export"))
    ran = subprocess.run(["sh", "-c", f'{exports} printf %s "$NASTY"'], capture_output=True, text=True, check=True)
    assert ran.stdout == nasty
