"""Commands of training frameworks: from the paste to a job, with a program that starts torchrun as llamafactory-cli does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.adopt.signs import kind_of
from dstui.plan import PlanError, load
from tests import command

COMMANDS = (
    ("FORCE_TORCHRUN=1 llamafactory-cli train x.yaml", ["llamafactory-cli", "train", "x.yaml"], {"FORCE_TORCHRUN": "1"}),
    ("axolotl train c.yml --deepspeed ds.json", ["axolotl", "train", "c.yml", "--deepspeed", "ds.json"], {}),
    (
        "NPROC_PER_NODE=2 swift sft --model m --deepspeed=ds.json",
        ["swift", "sft", "--model", "m", "--deepspeed=ds.json"],
        {"NPROC_PER_NODE": "2"},
    ),
    ("xtuner train cfg.py --deepspeed ds.json", ["xtuner", "train", "cfg.py", "--deepspeed", "ds.json"], {}),
    ("trl sft --config x.yaml", ["trl", "sft", "--config", "x.yaml"], {}),
)
CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
FRAMEWORK = """\
#!/bin/sh
echo "framework with $FORCE_TORCHRUN $*"
exec torchrun --nproc_per_node 2 train.py
"""
TORCHRUN = "#!{python}\nfrom torch.distributed.run import main\nmain()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.yaml").write_text("model_name_or_path: m\ndeepspeed: ds.json\n")
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.mark.parametrize(("text", "words", "env"), COMMANDS, ids=[words[0] for _, words, _ in COMMANDS])
def test_framework_command_is_imported_with_its_deepspeed_file(folder: Path, text: str, words: list[str], env: dict[str, str]) -> None:
    (folder / "f.sh").write_text(text + "\n")
    done = command.dstui("import", "f.sh", cwd=folder)
    plan = load(done.stdout, "plan.yaml", str(folder))
    assert (list(plan.job.command), dict(plan.cluster.env)) == (words, env), done.stderr
    assert plan.deepspeed.get("zero_optimization") == {"stage": 2} and "ds.json" in done.stderr


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        ("zero2", {"stage": 2}),
        ("deepspeed_zero3_offload", {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}),
    ],
)
def test_configuration_that_a_framework_has_by_name_gives_the_checks_its_stage(folder: Path, name: str, zero: dict[str, object]) -> None:
    for framework, text in (("swift", f"sft --model Qwen/Qwen2.5-7B --deepspeed {name}"), ("trl", f"sft --accelerate_config {name}")):
        (folder / "f.sh").write_text(f"{framework} {text}")
        done = command.dstui("import", "f.sh", cwd=folder)
        plan = load(done.stdout, "plan.yaml", str(folder))
        assert plan.deepspeed["zero_optimization"] == zero and f"{name} is built into {framework}" in done.stderr
        assert list(plan.job.command)[-1] == name


def test_yaml_of_a_framework_that_is_not_here_is_named(folder: Path) -> None:
    (folder / "f.sh").write_text("axolotl train elsewhere.yaml")
    assert "elsewhere.yaml does not exist here: axolotl will read it itself" in command.dstui("import", "f.sh", cwd=folder).stderr


def test_defaults_of_frameworks_reach_the_model(folder: Path) -> None:
    for text, lora, kept in (
        ("swift sft --model Qwen/Qwen2.5-7B", True, True),
        ("swift sft --model Qwen/Qwen2.5-7B --train_type full --gradient_checkpointing false", False, False),
        ("swift pt --model Qwen/Qwen2.5-7B", False, None),
        ("llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B --disable_gradient_checkpointing true", True, False),
        ("llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B --finetuning_type full", False, True),
    ):
        (folder / "f.sh").write_text(text)
        model = load(command.dstui("import", "f.sh", cwd=folder).stdout, "plan.yaml", str(folder)).data["model"]
        assert ("lora" in model, model.get("activation_checkpointing")) == (lora, kept), text


OWN_RANKS = {
    "go.py": "from deepspeed.launcher.runner import main\n\nif __name__ == '__main__':\n    main(['train.py'])\n",
    "spread.py": "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=4)\n",
    "trainers/ppo.py": "import ray\nray.init(num_cpus=4)\n",
    "plain.py": "import torch\n",
}


@pytest.mark.parametrize(
    ("text", "command_words"),
    [
        ("python -u ./go.py train.py -d conf a.yml", ["python", "./go.py", "train.py", "-d", "conf", "a.yml"]),
        ("python3 spread.py --x 1", ["python", "spread.py", "--x", "1"]),
        ("python -m trainers.ppo a=1", ["python", "-m", "trainers.ppo", "a=1"]),
        ("python -m verl.trainer.main_ppo a=1", ["python", "-m", "verl.trainer.main_ppo", "a=1"]),
        ("torchrun --nproc_per_node 2 spread.py", []),
        ("python plain.py", []),
    ],
)
def test_program_that_starts_its_ranks_itself_is_kept_as_a_command(folder: Path, text: str, command_words: list[str]) -> None:
    for name, code in OWN_RANKS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)
    (folder / "f.sh").write_text(text)
    done = command.dstui("import", "f.sh", cwd=folder)
    assert list(load(done.stdout, "plan.yaml", str(folder)).job.command) == command_words, done.stderr
    assert ("starts its ranks itself" in done.stderr) == bool(command_words)
    assert ("python starts one process" in done.stderr) == (text == "python plain.py")


def test_accelerate_script_that_no_launcher_tells_of_deepspeed_launches_as_it_is(folder: Path) -> None:
    (folder / "train.py").write_text("from accelerate import Accelerator\n\nmodel = Accelerator().prepare(model)\n")
    for text, integration in (
        ("torchrun --nproc_per_node 2 train.py", "deepspeed"),
        ("ACCELERATE_USE_DEEPSPEED=true torchrun train.py", "accelerate"),
    ):
        (folder / "f.sh").write_text(text)
        done = command.dstui("import", "f.sh", cwd=folder)
        assert load(done.stdout, "plan.yaml", str(folder)).job.integration == integration
        assert ("this launch trains without it" in done.stderr) == (integration == "deepspeed")
        (folder / f"{integration}.yaml").write_text(done.stdout)
    checked = command.dstui("check", "deepspeed.yaml", cwd=folder)
    assert checked.returncode == 0 and "set integration to accelerate" in checked.stdout


def test_command_line_with_leading_variables_is_no_env_file() -> None:
    assert kind_of("FORCE_TORCHRUN=1 llamafactory-cli train x.yaml\n") == "command"
    assert kind_of("FORCE_TORCHRUN=1\nNAME=swift\n") == "env"


@pytest.mark.parametrize("other", ["script: a.py", "module: a.b", "args: [x]"])
def test_command_excludes_script_and_launcher(other: str) -> None:
    with pytest.raises(PlanError, match="a command replaces the script"):
        load(f"version: 1\njob: {{command: [swift, sft], {other}}}\n", "plan.yaml", ".")


def test_framework_runs_by_its_command_and_its_launch_becomes_a_job(folder: Path) -> None:
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("llamafactory-cli", FRAMEWORK), ("torchrun", TORCHRUN.format(python=sys.executable))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (folder / "train.py").write_text("import os\nprint(\"{'loss': 1.5, 'reward': 0.5}\", 'rank', os.environ['RANK'], flush=True)\n")
    (folder / "f.sh").write_text(COMMANDS[0][0])
    env = {"PATH": f"{programs}:/usr/bin:/bin", "XDG_STATE_HOME": str(folder / "state")}
    assert command.dstui("import", "f.sh", "-o", "plan.yaml", cwd=folder, env=env).returncode == 0
    assert "exec env FORCE_TORCHRUN=1 llamafactory-cli train x.yaml" in command.dstui("render", "plan.yaml", cwd=folder, env=env).stdout
    done = command.dstui("--headless", "plan.yaml", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert "framework with 1 train x.yaml" in done.stdout and "rank 0" in done.stdout and "rank 1" in done.stdout
    (job,) = (folder / "dstui_runs").iterdir()
    assert "'reward': 0.5" in (job / "logs" / "rank_1.log").read_text()


SWIFT = """\
import os, subprocess, sys
args = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", os.environ["NPROC_PER_NODE"], "sft.py", *sys.argv[2:]]
print("run sh:", flush=True)
sys.exit(subprocess.run(args).returncode)
"""
TRL = """\
import sys
from accelerate.commands.launch import launch_command, launch_command_parser
launch_command(launch_command_parser().parse_args(["--num_processes", "2", "sft.py", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("NPROC_PER_NODE=2 swift sft --model m", "torchrun"),
        ("trl sft --model m", "accelerate"),
        ("python -m trl.cli sft --model m", "accelerate"),
    ],
)
def test_framework_that_starts_ranks_outside_the_path_is_detected(folder: Path, text: str, launcher: str) -> None:
    programs, package = folder / "bin", folder / "accelerate" / "commands"
    for place in (programs, package, folder / "trl" / "cli"):
        place.mkdir(parents=True)
    for module in (package.parent / "__init__.py", package / "__init__.py", folder / "trl" / "__init__.py", folder / "trl/cli/__init__.py"):
        module.touch()
    (package / "launch.py").write_text("def launch_command(args): raise SystemExit(9)\ndef launch_command_parser(): raise SystemExit(8)\n")
    (folder / "trl" / "cli" / "__main__.py").write_text(TRL)
    for name, program in (("swift", SWIFT), ("trl", TRL), ("accelerate", "")):
        (programs / name).write_text(f"#!{sys.executable}\n{program}")
        (programs / name).chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    (folder / "sft.py").touch()
    env = {"PATH": f"{programs}:/usr/bin:/bin", "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(folder)}
    done = command.dstui("run", "--hold", "-o", "held.yaml", "--", "bash", "-c", text, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    plan = load((folder / "held.yaml").read_text(), "held.yaml", str(folder))
    assert (plan.cluster.launcher, plan.job.script, list(plan.job.args)) == (launcher, "sft.py", ["--model", "m"])
    assert "DSTUI_INTERPRETER" not in plan.cluster.env


def test_placeholder_in_a_command_is_the_rendered_configuration(folder: Path) -> None:
    program = folder / "own"
    program.write_text('#!/bin/sh\ncat "$2"\n')
    program.chmod(0o755)
    (folder / "plan.yaml").write_text(
        "version: 1\nname: ../x\njob: {command: [./own, --deepspeed, '{ds_config}']}\ndeepspeed: {train_batch_size: 6}\n"
    )
    done = command.dstui("--headless", "plan.yaml", cwd=folder)
    assert done.returncode == 0 and json.loads(done.stdout[done.stdout.index("{") :]) == {"train_batch_size": 6}, done.stderr
    assert command.dstui("render", "plan.yaml", "-o", "out", cwd=folder).returncode == 0
    run = subprocess.run(["sh", "out/launch.sh"], cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == {"train_batch_size": 6}


def test_settings_that_conflict_with_a_command_are_reported(folder: Path) -> None:
    (folder / "plan.yaml").write_text("version: 1\njob: {command: [swift, sft]}\n")
    done = command.dstui("--headless", "plan.yaml", "--detach", cwd=folder)
    assert done.returncode == 2 and "cannot be combined with job.command" in done.stderr
