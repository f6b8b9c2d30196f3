"""A pasted launch, a hostfile and a .deepspeed_env become a Plan; launcher and script arguments stay separate."""

from __future__ import annotations

import shlex

import pytest

from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.every_kind import FilesBeside, imported
from dstui.adopt.new_plan import Imported
from dstui.adopt.shell.shell_state import ShellContext
from dstui.check import check_plan
from dstui.forecast.forecast import forecast
from dstui.forecast.model import facts_of_params
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, load
from dstui.render.spec import launcher_words
from dstui.render.target import Target
from tests.adopt.shell_launches import parse, parse_inner

FILES = {
    "ds.json": '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}}',
    "plain.json": '{"train_batch_size": 8}',
    "acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\ndeepspeed_config: {zero_stage: 2}\n",
    "file.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {deepspeed_config_file: ds.json}\n",
}


def import_text(text: str, files: dict[str, str] = FILES) -> Imported:
    around = ShellContext("/project", parse=parse_inner)
    return imported("command", text, "pasted", (), FilesBeside(files.get, lambda _name: None, around, parse))


def plan(text: str) -> Plan:
    return load(import_text(text).text)


def notes(text: str) -> str:
    return "\n".join(import_text(text).notes)


def test_configuration_in_an_option_of_any_name_is_known_by_its_keys() -> None:
    files = {**FILES, "whole.json": FILES["ds.json"].replace('"auto"', "true")}
    found = load(import_text("deepspeed t.py --data plain.json --ds_file whole.json --x 1", files).text)
    assert found.deepspeed["zero_optimization"]["stage"] == 3
    assert found.job.args == ("--data", "plain.json", "--ds_file", "{ds_config}", "--x", "1")
    assert plan("deepspeed t.py --ds_file ds.json").deepspeed == {}, "the script fills in its auto"
    both = plan("deepspeed t.py --other=ds.json --deepspeed_config plain.json")
    assert both.deepspeed == {"train_batch_size": 8} and both.job.args[0] == "--other=ds.json"
    assert plan("deepspeed t.py --data plain.json").deepspeed == {}


def test_accelerates_default_configuration_applies_and_is_reported() -> None:
    there = {**FILES, "default_config.yaml": FILES["acc.yaml"]}
    for options, stage in (("", 2), ("--use_deepspeed --zero_stage 3", 3)):
        found = import_text(f"accelerate launch {options} train.py", there)
        assert load(found.text).get("deepspeed.zero_optimization.stage") == stage
        assert load(found.text).get("accelerate.mixed_precision", "fp16") == "fp16"
        assert any("default_config.yaml from its cache" in note for note in found.notes)
    other = import_text("accelerate launch --config_file file.yaml train.py", there)
    assert not any("default_config" in note for note in other.notes)


def test_several_lines_with_quotes_and_variables_are_one_command() -> None:
    found = plan(
        "#!/bin/bash\nexport NCCL_DEBUG=INFO\nMODEL=gpt2-large\n"
        'OMP_NUM_THREADS=4 deepspeed --num_gpus 2 --master_port 29501 \\\n  train.py --name "$MODEL" --text "a b" \\\n  --lr=5e-4\n'
    )
    assert (found.job.script, found.job.args) == ("train.py", ("--name", "gpt2-large", "--text", "a b", "--lr=5e-4"))
    assert (found.cluster.num_gpus, found.cluster.master_port) == (2, 29501)
    assert found.cluster.env == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize("script", ["nlp.py --mixed_precision fp16", "nlp.py --num_gpus 3"])
@pytest.mark.parametrize("launcher", ["deepspeed", "accelerate launch --use_deepspeed", "torchrun --nproc_per_node 2", "python"])
def test_option_after_the_script_belongs_to_the_script(launcher: str, script: str) -> None:
    found = plan(f"{launcher} {script}")
    assert found.job.args == tuple(script.split()[1:])
    assert found.cluster.num_gpus is None and "mixed_precision" not in found.accelerate


@pytest.mark.parametrize("given", ["--deepspeed ds.json", "--deepspeed=ds.json", "--deepspeed_config ds.json"])
def test_configuration_of_the_script_is_read_and_its_position_kept(given: str) -> None:
    found = plan(f"deepspeed train.py --a 1 {given} --b 2")
    assert " ".join(found.job.args) == f"--a 1 {given} --b 2".replace("ds.json", "{ds_config}")
    assert str(found.deepspeed["zero_optimization"]["reduce_bucket_size"].spelling) == "5e8"
    assert found.job.integration == "trainer"


def test_deepspeed_launcher_options_become_cluster_keys_or_are_kept() -> None:
    found = plan(
        'deepspeed --hostfile=hosts -i "a@b:0,2" --launcher PDSH --force_multi --ssh_port 2222 --module pkg.train --deepspeed_config plain.json'
    )
    cluster = found.cluster
    assert (cluster.hostfile, cluster.include, cluster.launcher) == ("hosts", "a@b:0,2", "pdsh")
    assert cluster.launcher_args == ("--force_multi", "--ssh_port", "2222")
    assert (found.job.module, found.job.script, found.deepspeed["train_batch_size"]) == ("pkg.train", None, 8)


def test_option_that_deepspeed_lacks_is_read_as_the_one_that_is_meant() -> None:
    found = plan("deepspeed --num_gpus 2 -m pkg.train run -c x.yaml")
    assert (found.job.module, list(found.job.args), found.cluster.launcher_args) == ("pkg.train", ["run", "-c", "x.yaml"], ())
    assert "--module" in notes("deepspeed -m pkg.train") and "--module" not in notes("torchrun -m pkg.train")


def test_accelerate_options_override_its_yaml_and_fill_gaps_of_a_file() -> None:
    found = plan('accelerate launch --config_file acc.yaml --mixed_precision="bf16" --zero-stage=3 --num_processes 4 test.py')
    assert found.deepspeed["zero_optimization"]["stage"] == 3
    assert found.deepspeed["bf16"] == {"enabled": True} and "fp16" not in found.deepspeed
    assert found.cluster.hosts == {"localhost": 4}
    filled = plan("accelerate launch --config_file file.yaml --gradient_accumulation_steps=5 test.py")
    assert filled.accelerate["deepspeed_config"]["gradient_accumulation_steps"] == 5
    assert "accelerate refuses" not in notes("accelerate launch --config_file file.yaml --gradient_accumulation_steps=5 test.py")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("deepspeed t.py --deepspeed nowhere.json --x 1", "nowhere.json"),
        ("deepspeed t.py --deepspeed_config=nowhere.json", "nowhere.json"),
        ("accelerate launch --config_file nowhere.yaml --num_processes 4 t.py", "nowhere.yaml"),
        ("accelerate launch t.py --deepspeed nowhere.json", "nowhere.json"),
    ],
)
def test_missing_configuration_stays_named_and_nothing_is_invented(text: str, name: str) -> None:
    found = plan(text)
    launch = [*found.cluster.launcher_args, *found.job.args]
    assert not found.deepspeed and name in " ".join(launch) and "{ds_config}" not in launch
    about = {finding.code: finding for finding in check_plan(Target(found), world_size=4)}
    assert name in about["PL029"].message and not any(finding.severity == "error" for finding in about.values())
    foretold = forecast(found, facts_of_params(1e9), Machine.unprobed(), None)
    assert name in foretold.problem and foretold.gpu.bytes is None


def test_accelerate_launch_uses_the_yaml_created_at_launch() -> None:
    found = plan("accelerate launch --config_file nowhere.yaml --num_processes 4 t.py")
    words = " ".join(launcher_words(Target(found, Machine.unprobed()).launch, ".", 0))
    assert words.count("--config_file") == 1 and words.endswith("--config_file nowhere.yaml --num_processes 4")


def test_torchrun_stays_torchrun() -> None:
    found = plan("torchrun --standalone --nproc-per-node=4 train.py").cluster
    assert (found.launcher, found.hosts) == ("torchrun", {"localhost": 4})
    assert plan("python -m torch.distributed.run --nproc_per_node 4 --master_port 29511 train.py").cluster.master_port == 29511
    assert plan("torchrun --nnodes 2:2 --nproc-per-node 4 train.py").cluster.num_nodes == 2  # a range of one size
    several = plan("torchrun --nnodes 2 --nproc-per-node 4 --rdzv_backend c10d --rdzv_endpoint n1:29500 --max-restarts 3 train.py").cluster
    assert (several.num_nodes, several.num_gpus) == (2, 4)
    assert several.launcher_args == ("--rdzv_backend", "c10d", "--rdzv_endpoint", "n1:29500", "--max_restarts", "3")


@pytest.mark.parametrize(
    "launcher", ["torchrun --nproc_per_node 2 --no-python", "deepspeed --num_gpus 2 --no_python", "accelerate launch --no_python"]
)
def test_interpreter_after_no_python_is_not_the_script(launcher: str) -> None:
    assert plan(f"{launcher} python -u train.py --lr 1").job.script == "train.py"
    found = plan(f"{launcher} /opt/venv/bin/python3.11 -m pkg.train --lr 1")
    assert (found.job.module, found.job.python) == ("pkg.train", "/opt/venv/bin/python3.11")
    for words in (["python", "-c", "import train"], ["./train.sh", "--lr", "1"]):
        text = f"{launcher} {shlex.join(words)}"
        assert list(plan(text).job.command) == [*launcher.split(), *words]
        assert f"each rank runs {words[0]}, not a script or module of Python" in notes(text)


def test_configuration_written_by_the_text_is_read() -> None:
    text = 'c=./ds.$ID.json\ncat <<EOT > $c\n{"train_batch_size": 24, "bf16": {"enabled": true}}\nEOT\ncd $REPO\ndeepspeed t.py --deepspeed_config ./ds.$ID.json'
    assert plan(text.replace("cd $REPO\n", "")).deepspeed["train_batch_size"] == 24
    assert plan(text).job.workdir == "${REPO}"


def test_hostfile_that_the_text_writes_first_gives_the_hosts() -> None:
    text = "H=hosts.$SLURM_JOB_ID\ncat > $H <<E\nn1 slots=4\nn2 slots=4\nE\ndeepspeed --hostfile $H t.py"
    assert plan(text).cluster.hosts == {"n1": 4, "n2": 4}
    for unknown in ("scontrol show hostnames > $H", 'echo "$(hostname) slots=$N" > $H'):
        assert plan(f"H=hosts.txt\n{unknown}\ndeepspeed --hostfile $H t.py").cluster.hostfile == "hosts.txt"


def test_one_of_several_launches_is_taken_and_the_others_are_listed() -> None:
    listed = notes("deepspeed a.py\nX=1 deepspeed b.py --c 2")
    assert "2 launches" in listed and "line 2: X=1 deepspeed b.py --c 2" in listed


@pytest.mark.parametrize(
    ("command", "cluster"),
    [
        ("mpirun -np 6 -H a:4,b:4 -x NCCL_DEBUG=INFO", {"launcher": "openmpi", "hosts": {"a": 4, "b": 2}, "env": {"NCCL_DEBUG": "INFO"}}),
        ("mpirun --hostfile nodes", {"launcher": "openmpi", "hostfile": "nodes"}),
        ("mpiexec -n 8 -ppn 4 -hosts a,b", {"launcher": "mpich", "hosts": {"a": 4, "b": 4}}),
        ("mpirun -n 4", {"hosts": {"localhost": 4}}),
        ("mpirun -np $N -H 'a b:9'", {}),
        ("srun -N2 --ntasks-per-node=4", {"launcher": "slurm", "num_nodes": 2, "num_gpus": 4}),
        ("srun --nodes 2 -n 16 nsys profile", {"launcher": "slurm", "num_nodes": 2, "num_gpus": 8}),
        ("srun", {"launcher": "slurm"}),
    ],
)
def test_ranks_that_mpirun_or_srun_start_are_those_of_the_plan(command: str, cluster: dict[str, object]) -> None:
    for text in (f"{command} python -u t.py --a 1", f'{command} bash -c "python t.py --a 1"'):
        found = plan(text)
        assert found.data.get("cluster", {}) == cluster
        assert (found.job.script, found.job.args) == ("t.py", ("--a", "1"))
        assert "one process" not in notes(text)
    assert plan(f"{command} torchrun --nproc_per_node 2 t.py").cluster.launcher == "torchrun"


def test_option_known_only_to_accelerate_makes_it_the_launcher() -> None:
    found = plan("accelerate launch --config_file acc.yaml --max_restarts 1 train.py").cluster
    assert (found.launcher, found.launcher_args) == ("accelerate", ("--max_restarts", "1"))
    for options in ("", "--use_deepspeed --mixed_precision bf16"):
        own = plan(f"accelerate launch {options} train.py --deepspeed ds.json")
        assert own.deepspeed["zero_optimization"]["stage"] == 3 and own.job.integration == "trainer"
    both = plan("accelerate launch --config_file acc.yaml train.py --deepspeed ds.json")
    assert both.job.args == ("--deepspeed", "ds.json") and both.deepspeed["zero_optimization"]["stage"] == 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("deepspeed train.py --deepspeed nowhere.json", "nowhere.json does not exist here"),
        ("deepspeed train.py $UNKNOWN", "${UNKNOWN} is open"),
        ("srun -N 2 deepspeed train.py", "srun -N 2 precedes the launch"),
        ("mpirun -np 16 --bind-to none python train.py", "mpirun -np 16 --bind-to none starts 16 ranks on this machine"),
        ("accelerate launch --config_file nowhere.yaml a.py", "nowhere.yaml does not exist here"),
        ("if nvidia-smi; then Z=3; fi; deepspeed a.py", ""),
        ("deepspeed --node_rank 1 a.py", "each gets its own"),
        ("deepspeed $OPTS a.py", "${OPTS} precedes the script and is not set here"),
        ("deepspeed a.py --files d/*.txt 'x*'", "d/*.txt is a pattern"),
        ("torchrun --master_port 0 a.py", "lets torchrun take a free port"),
    ],
)
def test_omitted_and_open_values_are_reported(text: str, part: str) -> None:
    assert part in notes(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ls -l",
        "deepspeed --num_gpus 2",
        "#!/usr/bin/env fish\ndeepspeed t.py",
        "torchrun $@ gpu.multi=true",
        'deepspeed "train.py',
        "python",
    ],
)
def test_text_without_a_launch_gives_a_message(text: str) -> None:
    with pytest.raises(ConfigError):
        import_text(text)
