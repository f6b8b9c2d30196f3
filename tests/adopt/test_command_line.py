"""A pasted launch, a hostfile and a .deepspeed_env become a Plan; what the launcher gets and what the script gets stay apart."""

from __future__ import annotations

import pytest

from dstui.adopt.command_line import read_command
from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.from_command import plan_of_command
from dstui.plan import Plan, load

FILES = {
    "ds.json": '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}}',
    "plain.json": '{"train_batch_size": 8}',
    "acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\ndeepspeed_config: {zero_stage: 2}\n",
    "file.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {deepspeed_config_file: ds.json}\n",
}


def plan(text: str) -> Plan:
    return load(plan_of_command(read_command(text), "pasted", FILES.get).text)


def notes(text: str) -> str:
    return "\n".join(plan_of_command(read_command(text), "pasted", FILES.get).notes)


def test_accelerates_default_configuration_applies_where_no_other_is_given_and_that_is_said() -> None:
    there = {**FILES, "default_config.yaml": FILES["acc.yaml"]}.get
    for options, stage in (("", 2), ("--use_deepspeed --zero_stage 3", 3)):
        found = plan_of_command(read_command(f"accelerate launch {options} train.py"), "pasted", there)
        assert load(found.text).get("deepspeed.zero_optimization.stage") == stage
        assert load(found.text).get("accelerate.mixed_precision", "fp16") == "fp16"
        assert any("default_config.yaml from its cache" in note for note in found.notes)
    other = plan_of_command(read_command("accelerate launch --config_file file.yaml train.py"), "pasted", there)
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
def test_a_flag_after_the_script_is_the_scripts(launcher: str, script: str) -> None:
    found = plan(f"{launcher} {script}")
    assert found.job.args == tuple(script.split()[1:])
    assert found.cluster.num_gpus is None and "mixed_precision" not in found.accelerate


@pytest.mark.parametrize("given", ["--deepspeed ds.json", "--deepspeed=ds.json", "--deepspeed_config ds.json"])
def test_the_configuration_that_the_script_is_given_is_read_and_its_place_kept(given: str) -> None:
    found = plan(f"deepspeed train.py --a 1 {given} --b 2")
    assert " ".join(found.job.args) == f"--a 1 {given} --b 2".replace("ds.json", "{ds_config}")
    assert str(found.deepspeed["zero_optimization"]["reduce_bucket_size"].spelling) == "5e8"
    assert found.job.integration == "trainer"


def test_the_deepspeed_launchers_options_are_keys_of_the_cluster_or_kept_as_typed() -> None:
    found = plan(
        'deepspeed --hostfile=hosts -i "a@b:0,2" --launcher PDSH --force_multi --ssh_port 2222 -m pkg.train --deepspeed_config plain.json'
    )
    cluster = found.cluster
    assert (cluster.hostfile, cluster.include, cluster.launcher) == ("hosts", "a@b:0,2", "pdsh")
    assert cluster.launcher_args == ("--force_multi", "--ssh_port", "2222")
    assert (found.job.module, found.job.script, found.deepspeed["train_batch_size"]) == ("pkg.train", None, 8)


def test_accelerates_flags_win_over_its_yaml_and_fill_what_a_file_leaves_open() -> None:
    found = plan('accelerate launch --config_file acc.yaml --mixed_precision="bf16" --zero-stage=3 --num_processes 4 test.py')
    assert found.deepspeed["zero_optimization"]["stage"] == 3
    assert found.deepspeed["bf16"] == {"enabled": True} and "fp16" not in found.deepspeed
    assert found.cluster.hosts == {"localhost": 4}
    filled = plan("accelerate launch --config_file file.yaml --gradient_accumulation_steps=5 test.py")
    assert filled.accelerate["deepspeed_config"]["gradient_accumulation_steps"] == 5
    assert "accelerate refuses" not in notes("accelerate launch --config_file file.yaml --gradient_accumulation_steps=5 test.py")


def test_torchrun_is_said_in_the_terms_of_deepspeeds_launcher() -> None:
    assert plan("torchrun --standalone --nproc-per-node=4 train.py").cluster.hosts == {"localhost": 4}
    assert plan("python -m torch.distributed.run --nproc_per_node 4 --master_port 29511 train.py").cluster.master_port == 29511
    assert "cluster.hosts" in notes("torchrun --nnodes 2 --nproc-per-node 4 --rdzv_endpoint n1:29500 train.py")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("deepspeed train.py --deepspeed nowhere.json", "nowhere.json is not here"),
        ("deepspeed train.py $UNKNOWN", "$UNKNOWN is a variable"),
        ("deepspeed train.py > log 2>&1", "was the shell's"),
        ("deepspeed a.py\ndeepspeed b.py", "the first is taken"),
        ("accelerate launch --config_file nowhere.yaml a.py", "nowhere.yaml is not here"),
        ("accelerate launch --fp8_backend te --use_deepspeed a.py", "--fp8_backend has no key"),
        ("torchrun --max-restarts 3 a.py", "--max_restarts is torchrun's own"),
        ("deepspeed --node_rank 1 a.py", "each gets its own"),
    ],
)
def test_what_is_left_out_or_open_is_said(text: str, part: str) -> None:
    assert part in notes(text)


@pytest.mark.parametrize("text", ["", "ls -l", "deepspeed --num_gpus 2", 'deepspeed "train.py', "python"])
def test_a_text_without_a_launch_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError):
        read_command(text)
