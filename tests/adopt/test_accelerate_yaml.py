"""An accelerate YAML becomes a Plan and back, compared by accelerate's own loader and questionnaire."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from real_accelerate import ask_accelerate

from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.every_kind import FilesBeside, imported
from dstui.adopt.from_accelerate import plan_of_accelerate
from dstui.adopt.shell.shell_state import ShellContext
from dstui.check.rules.all_rules import RULES
from dstui.plan import Plan, load
from dstui.plan.accelerate_keys import ALONE, QUESTIONNAIRE, parallelism_variables
from dstui.plan.hostfile import select
from dstui.render.accelerate import accelerate_yaml
from dstui.render.jsontext import json_text
from tests import releases
from tests.adopt.shell_launches import parse, parse_inner

ONE = {"deepspeed_config": {"zero_stage": 2, "gradient_accumulation_steps": 1, "zero3_init_flag": False}, "distributed_type": "DEEPSPEED"}
PUBLISHED = {
    "zero 2": "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n gradient_accumulation_steps: 1\n gradient_clipping: 1.0\n "
    "offload_optimizer_device: none\n offload_param_device: none\n zero3_init_flag: true\n zero_stage: 2\ndistributed_type: DEEPSPEED\n"
    "fsdp_config: {}\nmachine_rank: 0\nmain_process_ip: null\nmain_process_port: null\nmain_training_function: main\n"
    "mixed_precision: fp16\nnum_machines: 1\nnum_processes: 2\nuse_cpu: false\n",
    "zero 3 of peft, with quotes": "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  gradient_accumulation_steps: 1\n  "
    "gradient_clipping: 1.0\n  offload_optimizer_device: cpu\n  offload_param_device: cpu\n  zero3_init_flag: true\n  "
    "zero3_save_16bit_model: true\n  zero_stage: 3\ndistributed_type: DEEPSPEED\ndowncast_bf16: 'no'\ndynamo_backend: 'NO'\n"
    "fsdp_config: {}\nmachine_rank: 0\nmain_training_function: main\nmegatron_lm_config: {}\nmixed_precision: 'no'\nnum_machines: 1\n"
    "num_processes: 1\nrdzv_backend: static\nsame_network: true\nuse_cpu: false\n",
    "an old one": "distributed_type: DEEPSPEED\nnum_processes: 4\ncommand_file: null\ncommands: null\ntpu_name: null\ngpu_ids: null\n"
    "deepspeed_config: {zero_stage: 1}\n",
    "a file of its own": "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: conf/ds.json\n  "
    "zero3_init_flag: true\n",
    "some of the GPUs": "distributed_type: DEEPSPEED\nnum_processes: 2\ngpu_ids: 2,3\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n",
    "unquoted no": "distributed_type: DEEPSPEED\nnum_processes: 2\ndowncast_bf16: no\ndeepspeed_config: {zero_stage: 2}\n",
    "not DeepSpeed": "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n",
    "two machines, standard": "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 1\nmain_process_ip: 10.0.0.1\n"
    "main_process_port: 29501\ndeepspeed_config: {zero_stage: 2, deepspeed_multinode_launcher: standard}\n",
    "two machines, no launcher": "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmain_process_ip: 10.0.0.1\n"
    "deepspeed_config: {zero_stage: 2, deepspeed_hostfile: h, deepspeed_exclusion_filter: 'n2:0'}\n",
}
NAMED = '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}}'


def adopted(text: str, named: str | None = NAMED) -> Plan:
    return load(plan_of_accelerate(text, "acc.yaml", read_named=lambda _name: named).text)


def yaml_of(plan: Plan) -> str:
    """Return the Plan's YAML, with as many slots as its own hosts have."""
    here = (plan.cluster.include or "").startswith("localhost:")
    hosts = plan.cluster.hosts or ({"localhost": 8} if here else None)
    return accelerate_yaml(plan, select(hosts, include=plan.cluster.include) if hosts else None)


def random_yaml(rng: random.Random) -> dict[str, Any]:
    """Return a YAML with random keys and values that accelerate accepts."""
    inner: dict[str, Any] = {
        "zero_stage": rng.choice([0, 1, 2, 3]),
        "offload_optimizer_device": rng.choice(["none", "cpu"]),
        "offload_param_device": rng.choice(["none", "cpu"]),
        "gradient_accumulation_steps": rng.choice([1, 4, 16]),
        "gradient_clipping": rng.choice([0.5, 1.0, 2]),
        "zero3_init_flag": rng.choice([True, False]),
        "zero3_save_16bit_model": rng.choice([True, False]),
        "deepspeed_moe_layer_cls_names": "MixtralSparseMoeBlock",
        "deepspeed_multinode_launcher": rng.choice(["pdsh", "standard", "nossh", "slurm", "mvapich"]),
        "deepspeed_hostfile": "hosts/file",
        "deepspeed_inclusion_filter": "n1@n2:0,1",
        "not_known": 1,
    }
    top: dict[str, Any] = {
        **{name: value for name, value in QUESTIONNAIRE.items() if name != "distributed_type"},
        "mixed_precision": rng.choice(["no", "fp16", "bf16", "fp8"]),
        "num_processes": rng.choice([1, 2, 8]),
        "num_machines": rng.choice([1, 1, 2]),
        "main_process_ip": "10.0.0.1",
        "main_process_port": rng.choice([0, 29501]),
        "gpu_ids": rng.choice(["all", "0,1", "2,3"]),
        "dynamo_config": {"dynamo_backend": "INDUCTOR"},
        "parallelism_config": {"parallelism_config_sp_size": 2},
        "fp8_config": {"backend": "TE"},
        "debug": True,
        "same_network": False,
    }
    chosen = {name: value for name, value in inner.items() if rng.random() < 0.6}
    if rng.random() < 0.25:
        chosen = {**{name: value for name, value in chosen.items() if name not in ALONE}, "deepspeed_config_file": "ds.json"}
        top.pop("mixed_precision")
    kept = {name: value for name, value in top.items() if rng.random() < 0.6}
    return {**kept, "distributed_type": "DEEPSPEED", "deepspeed_config": chosen}


ONE_CHILD = pytest.mark.xdist_group("accelerate")
"""Importing accelerate takes longer than its answers."""


def texts() -> list[str]:
    rng = random.Random(14)
    return [*PUBLISHED.values(), *(yaml.safe_dump(random_yaml(rng)) for _ in range(300))]


@pytest.fixture(scope="module")
def accelerate() -> dict[str, Any]:
    """Return what accelerate loads from the texts and from dstui's versions of them, and what it writes for the sets of answers."""
    back = [yaml_of(adopted(text)) for text in texts()]
    launches = [yaml_of(load(ULYSSES)), "--use_deepspeed --use_parallelism_config --parallelism_config_sp_size 8 train.py"]
    return ask_accelerate(releases.accelerate(), [*texts(), *back], [questionnaire(a) for a in answer_sets()], launches)


ULYSSES = """version: 1
job: {script: train.py, integration: accelerate}
cluster: {hosts: {localhost: 8}}
accelerate: {parallelism_config: {parallelism_config_sp_size: 8}}
deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3}}
"""


@ONE_CHILD
def test_ranks_get_the_ulysses_settings_that_accelerate_launch_gives(accelerate: dict[str, Any]) -> None:
    env, refusal = accelerate["launched"]
    mine = parallelism_variables(load(ULYSSES))
    assert mine["PARALLELISM_CONFIG_SP_SIZE"] == "8" and mine.items() <= env.items()
    assert RULES["PL060"].says in refusal


def test_ulysses_options_become_the_yamls_section() -> None:
    line = "accelerate launch --use_deepspeed --use_parallelism_config --parallelism_config_sp_size 8 --zero_stage 3 train.py"
    beside = FilesBeside(lambda _name: None, lambda _name: None, ShellContext("/project", parse=parse_inner), parse)
    found = imported("command", line, "pasted", (), beside)
    assert load(found.text).accelerate["parallelism_config"] == {"parallelism_config_sp_size": 8}
    assert any("refuses it on the command line" in note for note in found.notes)
    assert not any("left out" in note for note in found.notes)


@ONE_CHILD
def test_round_trip_gives_what_accelerate_loads(accelerate: dict[str, Any]) -> None:
    said, number = accelerate["loaded"], len(texts())
    for text, before, after in zip(texts(), said[:number], said[number:], strict=True):
        assert after == before, text
        assert isinstance(before, dict), f"{before}: {text}"


# -- what the questionnaire writes for the same answers

STAGES = [
    (stage, *offload) for stage in (0, 1, 2, 3) for offload in (itertools.product(("none", "cpu"), repeat=2) if stage > 1 else [("", "")])
]
MACHINES: list[dict[str, Any]] = [
    {},
    {"launcher": "pdsh", "exclude": "n2:0"},
    {"launcher": "standard", "rank": 1, "same": False},
    {"launcher": "nossh", "include": "n1@n2", "rank": 1},
    {"launcher": "slurm"},
]


def answer_sets() -> list[dict[str, Any]]:
    """Return answers on stage, offload, precision, machines and the rest, so that each pair of answers occurs."""
    sets: list[dict[str, Any]] = []
    for number, ((stage, optimizer, param), precision) in enumerate(itertools.product(STAGES, ("no", "fp16", "bf16"))):
        sets.append({"stage": stage, "optimizer": optimizer, "param": param, "precision": precision, "gas": 1 + number % 4})
        sets[-1] |= {"clip": [None, 1.0, 0.5][number % 3], "gather": number % 2 == 0, "init": number % 4 == 0, "debug": number % 5 == 0}
        sets[-1] |= {"moe": ["", "MixtralSparseMoeBlock", "A,B"][number % 3], "ranks": [2, 8, 1][number % 3], **MACHINES[number % 5]}
    for number, machines in enumerate(MACHINES * 5):
        sets.append({"file": f"conf/{number}.json", "init": number % 2 == 0, "moe": "", "ranks": 8, "debug": False, **machines})
    return sets


def questionnaire(a: Mapping[str, Any]) -> dict[str, Any]:
    """Return fragments of accelerate's prompts with the answers."""
    yes = {True: "yes", False: "no"}
    several = "launcher" in a
    asked = {
        "compute environment": "This machine",
        "Which type of machine": "multi-GPU",
        "How many different machines": 2 if several else 1,
        "What is the rank": a.get("rank", 0),
        "IP address": "n1",
        "port you will use": 29501,
        "same local network": yes[a.get("same", True)],
        "rendezvous backend": "c10d",
        "checked while running": yes[a["debug"]],
        "want to use DeepSpeed": "yes",
        "json file to a DeepSpeed config": yes["file" in a],
        "path to the json": a.get("file", ""),
        "optimization stage": a.get("stage"),
        "offload optimizer states?": a.get("optimizer"),
        "offload parameters?": a.get("param"),
        "accumulation steps": a.get("gas"),
        "want to use gradient clipping": yes[a.get("clip") is not None],
        "gradient clipping value": a.get("clip"),
        "save 16-bit": yes[a.get("gather", False)],
        "zero.Init": yes[a["init"]],
        "Mixture-of-Experts": yes[bool(a["moe"])],
        "MoE layer class names": a["moe"],
        "Type of launcher": a.get("launcher"),
        "location of hostfile": "hosts",
        "specify exclusion filter": yes["exclude" in a],
        "exclusion filter string: ": a.get("exclude"),
        "specify inclusion filter": yes["include" in a],
        "inclusion filter string: ": a.get("include"),
        "How many GPU(s)": ranks(a),
        "mixed precision": a.get("precision"),
    }
    return {prompt: answer for prompt, answer in asked.items() if answer is not None}


def pool(a: Mapping[str, Any]) -> dict[str, list[int]]:
    hosts = {"n1": 4, "n2": 4} if "launcher" in a else {"localhost": a["ranks"]}
    return select(hosts, include=a.get("include"), exclude=a.get("exclude"))


def ranks(a: Mapping[str, Any]) -> int:
    return sum(map(len, pool(a).values()))


def plan_of(a: Mapping[str, Any]) -> Plan:
    """Return a Plan with the same answers, in DeepSpeed's terms."""
    zero: dict[str, Any] = {"stage": a.get("stage", 3)}
    zero |= {f"offload_{name}": {"device": a[key]} for name, key in (("optimizer", "optimizer"), ("param", "param")) if a.get(key) == "cpu"}
    zero |= {"stage3_gather_16bit_weights_on_model_save": True} if a.get("gather") and a["stage"] == 3 else {}
    deepspeed: dict[str, Any] = {"zero_optimization": zero, "gradient_accumulation_steps": a.get("gas", 1)}
    deepspeed |= {"gradient_clipping": a["clip"]} if a.get("clip") is not None else {}
    deepspeed |= {a["precision"]: {"enabled": True}} if a.get("precision", "no") != "no" else {}
    accelerate: dict[str, Any] = {"deepspeed_config": {"zero3_init_flag": a["init"]}}
    accelerate["deepspeed_config"] |= {"deepspeed_moe_layer_cls_names": a["moe"]} if a["moe"] else {}
    accelerate["deepspeed_config"] |= {"deepspeed_config_file": a["file"]} if "file" in a else {}
    accelerate |= {"debug": True} if a["debug"] else {}
    cluster: dict[str, Any] = {"hosts": {"localhost": a["ranks"]}}
    if "launcher" in a:
        accelerate |= {"machine_rank": a.get("rank", 0), "same_network": a.get("same", True)}
        accelerate |= {} if a.get("same", True) else {"rdzv_backend": "c10d"}
        cluster = {"hostfile": "hosts", "launcher": a["launcher"].replace("standard", "ssh"), "master_port": 29501}
        cluster |= {name: a[name] for name in ("include", "exclude") if name in a}
    return load(yaml.safe_dump({"version": 1, "cluster": cluster, "accelerate": accelerate, "deepspeed": deepspeed}, sort_keys=False))


@ONE_CHILD
def test_yaml_of_a_plan_equals_that_of_accelerate_config(accelerate: dict[str, Any]) -> None:
    sets = answer_sets()
    assert len(sets) >= 50
    for a, wanted in zip(sets, accelerate["written"], strict=True):
        made = yaml.safe_load(accelerate_yaml(plan_of(a), pool(a)))
        if a.get("launcher") == "standard":
            made["deepspeed_config"].pop("deepspeed_hostfile", None)
        assert made == yaml.safe_load(wanted), a


# -- notes

SAID = {
    r"compute\_environment: LOCAL\_MACHINE": "backslashes",
    "fsdp_config: {}machine_rank: 0": "two keys on one line",
    "main_training_function: main,": "commas",
    "mixed_precision: no": "'no'",
    "fp16: true": "old name",
    "zzz: 1": "has no such key",
    "deepspeed_config: {zero_stage: 2, zzz: 1}": "ignores it",
    "deepspeed_config: {zero_stage: two}": "is not a valid value",
    "num_machines: 2": "cluster.hosts",
    "deepspeed_config: {deepspeed_config_file: ds.json, zero_stage: 2}": "accelerate refuses",
}


@pytest.mark.parametrize("line", SAID)
def test_changed_or_unknown_keys_are_reported_and_kept_in_the_plan(line: str) -> None:
    found = plan_of_accelerate(f"distributed_type: DEEPSPEED\nnum_processes: 2\n{line}\n", "a.yaml", read_named=lambda _name: NAMED)
    assert any(SAID[line] in note for note in found.notes)
    assert all(f"# {note}" in found.text for note in found.notes)
    load(found.text)


@pytest.mark.parametrize("line", ["downcast_bf16: 2001-01-01", "fsdp_config: {1: 2, true: [2001-01-01]}", "zzz: !!binary aGk="])
def test_yaml_1_1_values_are_kept_as_text(line: str) -> None:
    load(plan_of_accelerate(f"distributed_type: DEEPSPEED\nnum_processes: 2\n{line}\n", "a.yaml").text)


def test_named_ds_config_is_read_with_its_number_spelling() -> None:
    plan = adopted(PUBLISHED["a file of its own"])
    assert '"reduce_bucket_size": 5e8' in json_text(plan.deepspeed)
    assert plan.get("accelerate.deepspeed_config.deepspeed_config_file") == "conf/ds.json"


def test_missing_ds_config_is_reported_and_its_name_kept() -> None:
    found = plan_of_accelerate(PUBLISHED["a file of its own"], "a.yaml")
    assert any("conf/ds.json does not exist here" in note for note in found.notes)
    assert "conf/ds.json" in yaml_of(load(found.text))


def test_keys_beyond_the_plugin_need_a_config_file_with_only_allowed_keys() -> None:
    plan = adopted(PUBLISHED["zero 2"]).set("deepspeed.zero_optimization.overlap_comm", True)
    made = yaml_of(plan)
    inner = yaml.safe_load(made)["deepspeed_config"]
    assert inner == {"deepspeed_config_file": "ds_config.json", "zero3_init_flag": True}
    assert "mixed_precision" not in yaml.safe_load(made)
    assert "zero_optimization.overlap_comm" in made.splitlines()[0]


@pytest.mark.parametrize("path", ["offload_optimizer", "offload_param"])
def test_nvme_needs_a_config_file_since_accelerate_loses_the_path(path: str) -> None:
    plan = load("version: 1\ndeepspeed: {zero_optimization: {stage: 3}}\n").set(
        f"deepspeed.zero_optimization.{path}", {"device": "nvme", "nvme_path": "/nvme"}
    )
    assert "deepspeed_config_file" in yaml.safe_load(yaml_of(plan))["deepspeed_config"]


@pytest.mark.parametrize("text", ["deepspeed_config: 3\ndistributed_type: DEEPSPEED\n", "a: [1\n", "- 1\n", ""])
def test_file_that_is_no_configuration_gives_a_message(text: str) -> None:
    with pytest.raises(ConfigError):
        plan_of_accelerate(text, "a.yaml")
