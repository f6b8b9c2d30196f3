"""The command line can be pasted and follows DeepSpeed's options; DeepSpeed's argument parser is the reference."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.base.text import escaped
from dstui.machine.snapshot import Host, Machine
from dstui.plan import Plan, load
from dstui.render.artifacts import artifacts
from dstui.render.launch import RenderError, launch_spec, slots
from dstui.render.quoting import quote_word
from dstui.render.target import Target
from tests import machines
from tests.machines import NO_GPU, gpus

GPUS = machines.machine(*gpus(4))
PDSH = ["--hostfile", "./hostfile", "--launcher", "pdsh", "--force_multi"]


def plan(cluster: str = "{}", job: str = "{script: train.py, args: [--deepspeed_config, {ds_config}]}", deepspeed: str = "{}") -> Plan:
    return load(f"version: 1\njob: {job}\ncluster: {cluster}\ndeepspeed: {deepspeed}\n", base="/data")


@pytest.mark.parametrize(
    ("cluster", "machine", "options", "ranks"),
    [
        ("{}", NO_GPU, ["--num_gpus", "2"], 2),
        ("{cpu_ranks: 3}", NO_GPU, ["--num_gpus", "3"], 3),
        ("{}", GPUS, [], 4),
        ("{num_gpus: 2}", GPUS, ["--num_gpus", "2"], 2),
        ("{hosts: {localhost: 2}}", GPUS, ["--num_gpus", "2"], 2),
        ('{include: "localhost:0,2"}', GPUS, ["--include", "localhost:0,2"], 2),
        ('{exclude: "localhost:1"}', GPUS, ["--exclude", "localhost:1"], 3),
        ("{master_port: 29511}", GPUS, ["--master_port", "29511"], 4),
        ("{cpu_binding: deepspeed, launcher_args: [--no_local_rank]}", GPUS, ["--bind_cores_to_rank", "--no_local_rank"], 4),
        ("{hosts: {a: 8, b: 8}, launcher: pdsh}", NO_GPU, [*PDSH, "--master_addr", "a", "--master_port", "29500"], 16),
        (
            "{hosts: {a: 8, b: 8}, launcher: pdsh, num_nodes: 1, master_addr: 10.0.0.1}", NO_GPU,
            [*PDSH, "--master_addr", "10.0.0.1", "--master_port", "29500", "--num_nodes", "1"], 8,
        ),
    ],
)  # fmt: skip
def test_launcher_options_follow_from_the_cluster(cluster: str, machine: Machine, options: list[str], ranks: int) -> None:
    spec = launch_spec(plan(cluster), machine)
    assert spec.options() == options
    assert (len(spec.ranks), Target(plan(cluster), machine).world_size) == (ranks, ranks)


@pytest.mark.parametrize(("cluster", "size"), [("{cpu_ranks: 3}", "3"), ("{hosts: {localhost: 4}, num_gpus: 2}", "4")])
def test_launcher_gets_the_number_of_cpu_ranks(cluster: str, size: str) -> None:
    """DeepSpeed before 0.16 counts them by numactl and crashes without it (tests/long/test_older_launchers.py)."""
    assert launch_spec(plan(cluster), NO_GPU).environment()["LOCAL_SIZE"] == size
    assert "LOCAL_SIZE" not in launch_spec(plan(cluster), GPUS).environment()


def test_number_of_ranks_is_unknown_for_an_unprobed_machine() -> None:
    assert Target(plan(), Machine.unprobed()).world_size is None


def test_deepspeeds_parser_reads_every_command_as_intended() -> None:
    clusters = [
        "{}",
        "{hosts: {a: 8, b: 8}, launcher: pdsh, include: a@b:0, master_port: 1234, launcher_args: [--ssh_port, 2222]}",
        "{cpu_binding: deepspeed, num_gpus: 2}",
    ]
    jobs = ["{script: train.py, args: [--deepspeed_config, {ds_config}, --num_gpus, 9]}", "{module: pkg.train, args: [-x]}"]
    argvs = [launch_spec(plan(cluster, job), GPUS).argv("/x/ds.json")[3:] for cluster in clusters for job in jobs]
    ask = (
        "# asks the launcher\nimport json, sys\nfrom deepspeed.launcher.runner import parse_args\n"
        "print('ANSWER' + json.dumps([vars(parse_args(argv)) for argv in json.load(sys.stdin)]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", ask],
        input=json.dumps(argvs),
        text=True,
        capture_output=True,
        check=True,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )
    parsed = json.loads(answer.stdout.partition("ANSWER")[2])
    assert [(p["user_script"], p["module"]) for p in parsed] == [("train.py", False), ("pkg.train", True)] * 3
    assert parsed[0]["user_args"] == ["--deepspeed_config", "/x/ds.json", "--num_gpus", "9"]
    assert (parsed[2]["include"], parsed[2]["launcher"], parsed[2]["force_multi"], parsed[2]["master_port"]) == (
        "a@b:0",
        "pdsh",
        True,
        1234,
    )
    assert (parsed[4]["bind_cores_to_rank"], parsed[4]["num_gpus"]) == (True, 2)


def test_pasted_command_gives_the_shell_exactly_these_words(tmp_path: Path) -> None:
    nasty = ["a b", "it's", "$HOME", 'x"y', "*", "", "{ds_config}"]
    (tmp_path / "show.py").write_text(
        "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.getcwd(), os.environ['A'], os.environ['DSTUI_DS_CONFIG']]))"
    )
    mine = load(
        f"version: 1\njob: {{script: show.py, args: {json.dumps(nasty)}}}\ncluster: {{env: {{A: $X 'y'}}, hosts: {{localhost: 1}}}}\n",
        base=str(tmp_path),
    )
    command = launch_spec(mine, NO_GPU).command("cfg dir/ds_config.json")
    assert shlex.split(command)  # the command is complete
    plain = command.replace("-m deepspeed.launcher.runner --num_gpus 1", "")
    words, folder, value, config = json.loads(subprocess.run(["sh", "-c", plain], capture_output=True, text=True, check=True).stdout)
    assert words == [*nasty[:-1], "cfg dir/ds_config.json"]
    assert (folder, value, config) == (str(tmp_path), "$X 'y'", f"{tmp_path}/cfg dir/ds_config.json")


def test_rendering_is_deterministic() -> None:
    mine = plan("{hosts: {a: 2, b: 2}, launcher: pdsh, env: {NCCL_DEBUG: INFO}}")
    files = {artifact.name: artifact.text for artifact in artifacts(Target(mine, GPUS))}
    assert files == {artifact.name: artifact.text for artifact in artifacts(Target(mine, GPUS))}
    assert files["hostfile"] == "a slots=2\nb slots=2\n"
    assert files[".deepspeed_env"].splitlines()[-1] == "NCCL_DEBUG=INFO"


def test_each_node_has_its_command_if_nobody_starts_the_others() -> None:
    command = launch_spec(plan("{hosts: {a: 2, b: 2}, launcher: nossh}"), GPUS).command()
    assert "# on a\n" in command
    assert "--no_ssh --node_rank 1 --master_addr a --master_port 29500" in command


def test_accelerate_finds_the_environment_of_its_own_launcher() -> None:
    spec = launch_spec(
        plan(job="{script: a.py, integration: accelerate}", deepspeed="{bf16: {enabled: true}, zero_optimization: {stage: 3}}"), NO_GPU
    )
    env = spec.environment("/x/ds.json")
    assert env["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert env["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "/x/ds.json"
    assert (env["ACCELERATE_MIXED_PRECISION"], env["ACCELERATE_DEEPSPEED_ZERO3_INIT"]) == ("bf16", "true")
    assert spec.argv().count("--no_local_rank") == 1


@pytest.mark.parametrize(
    ("deepspeed", "accelerate", "precision", "init"),
    [
        ("{bf16: {enabled: auto}, zero_optimization: {stage: auto}}", "{}", None, None),
        ("{bf16: {enabled: auto}, zero_optimization: {stage: 2}}", "{mixed_precision: bf16}", "bf16", "false"),
        ("{bf16: {enabled: false}}", "{}", "no", "false"),
        ("{zero_optimization: {stage: 3}}", "{mixed_precision: 'no'}", "no", "true"),
        ("{fp16: {enabled: true}, bf16: {enabled: auto}}", "{}", "fp16", "false"),
    ],
)
def test_auto_is_left_to_accelerate(deepspeed: str, accelerate: str, precision: str | None, init: str | None) -> None:
    text = f"version: 1\njob: {{script: a.py, integration: accelerate}}\naccelerate: {accelerate}\ndeepspeed: {deepspeed}\n"
    env = launch_spec(load(text), NO_GPU).environment()
    assert (env.get("ACCELERATE_MIXED_PRECISION"), env.get("ACCELERATE_DEEPSPEED_ZERO3_INIT")) == (precision, init)


def test_option_of_the_user_is_not_repeated() -> None:
    spec = launch_spec(plan("{launcher_args: [--no_local_rank]}", job="{script: a.py, integration: accelerate}"), NO_GPU)
    assert spec.argv().count("--no_local_rank") == 1


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ("{hosts: {a: 2}, launcher: local}", "cluster.launcher: local starts ranks on this machine only, but there is a"),
        ("{include: nowhere}", "cluster.include: include names the host 'nowhere'"),
        ("{hosts: {a: 2}, num_nodes: 2}", "cluster.num_nodes: num_nodes is 2, but there are only 1 hosts"),
    ],
)
def test_value_that_cannot_be_a_command_names_its_key(cluster: str, sentence: str) -> None:
    with pytest.raises(RenderError, match=sentence):
        launch_spec(plan(cluster), GPUS)


@pytest.mark.parametrize(
    ("cluster", "variable", "used"),
    [
        ("{}", "2,1", [1, 2]),
        ("{}", "", [0, 1, 2, 3]),
        ("{}", "GPU-abc", [0, 1, 2, 3]),
        ("{num_gpus: 1}", "2,1", [0]),
        ("{include: 'localhost:3'}", "2,1", [3]),
    ],
)
def test_visible_devices_choose_the_slots_by_default(cluster: str, variable: str, used: list[int]) -> None:
    machine = machines.machine(*GPUS.gpus, host=Host(environment={"CUDA_VISIBLE_DEVICES": variable}))
    assert slots(plan(cluster), machine) == {"localhost": used}


def test_visible_devices_of_the_plan_count_as_for_the_launcher() -> None:
    mine = plan("{env: {CUDA_VISIBLE_DEVICES: '0,2,3'}}")
    other = machines.machine(*GPUS.gpus, host=Host(environment={"CUDA_VISIBLE_DEVICES": "1"}))
    assert [slots(mine, machine) for machine in (GPUS, other)] == [{"localhost": [0, 2, 3]}] * 2
    assert Target(mine, other).world_size == 3


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "openmpi"])
def test_visible_devices_can_choose_gpus_that_the_launcher_cannot(launcher: str) -> None:
    spec = launch_spec(plan(f"{{launcher: {launcher}, env: {{CUDA_VISIBLE_DEVICES: '0,2'}}}}"), machines.machine(*gpus(4)))
    assert (len(spec.ranks), spec.environment()["CUDA_VISIBLE_DEVICES"]) == (2, "0,2")


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8") | st.sampled_from("\x1b\x07\n\t'\"$`\\%\x9b\u202e\udcff"), max_size=30)
)
@settings(max_examples=60)
def test_any_word_is_pasted_unchanged_and_shown_without_control_characters(word: str) -> None:
    shown = quote_word(word)
    assert escaped(shown) == shown
    said = subprocess.run(["/bin/sh", "-c", f"printf %s {shown}"], capture_output=True, check=True).stdout
    assert said == word.encode("utf-8", "surrogateescape")


def test_script_named_like_an_option_is_a_path_for_every_launcher() -> None:
    for name in ("--help", "-m", "bind:x.py"):
        spec = launch_spec(load(f'version: 1\njob: {{script: "{name}"}}\n', base="/data"), NO_GPU)
        assert spec.argv()[-1] == f"./{name}"
    assert launch_spec(plan(job="{module: pkg.train}"), NO_GPU).script == ("-m", "pkg.train")


def test_hostfile_with_only_this_machine_starts_local_slots() -> None:
    for launcher in ("null", "local"):
        spec = launch_spec(plan(f"{{hostfile: h, launcher: {launcher}}}"), GPUS, {"localhost": 2})
        assert (spec.local, spec.options(), len(spec.ranks)) == (True, ["--num_gpus", "2"], 2)
    with pytest.raises(RenderError, match="there is other"):
        launch_spec(plan("{hostfile: h, launcher: local}"), GPUS, {"localhost": 2, "other": 1})


@pytest.mark.parametrize(
    ("launcher", "node", "words"),
    [
        ("ssh", 1, "deepspeed.launcher.runner --hostfile ./hostfile --no_ssh --node_rank 1 --master_addr a --master_port 29500 train.py"),
        ("nossh", 0, "deepspeed.launcher.runner --hostfile ./hostfile --no_ssh --node_rank 0 --master_addr a --master_port 29500 train.py"),
        ("slurm", 1, "deepspeed.launcher.runner --hostfile ./hostfile --no_ssh --node_rank 1 --master_addr a --master_port 29500 train.py"),
        ("torchrun", 1, "torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank 1 --master-addr a --master-port 29500 train.py"),
        (
            "torchrun, launcher_args: [--rdzv-backend, c10d]", 1,
            "torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-endpoint a:29500 --rdzv-id dstui-29500 --rdzv-backend c10d train.py",
        ),
        (
            "accelerate", 1,
            "accelerate.commands.launch --config_file ./accelerate.yaml --machine_rank 1 --main_process_ip a --main_process_port 29500 "
            "train.py",
        ),
    ],
)  # fmt: skip
def test_commands_per_host_name_their_host(launcher: str, node: int, words: str) -> None:
    spec = launch_spec(plan(f"{{hosts: {{a: 2, b: 2}}, launcher: {launcher}}}", "{script: train.py}"), GPUS)
    assert (spec.start, spec.argv(node=node)[1:]) == ("hosts", ["-m", *words.split()])
    assert spec.argv(node=node, wrapper=["shim.py", "F"])[-3:] == ["shim.py", "F", "train.py"]


def test_accelerate_over_pdsh_is_one_command_with_the_hostfile() -> None:
    text = (
        "version: 1\njob: {script: a.py}\ncluster: {hosts: {a: 2, b: 2}, launcher: accelerate}\n"
        "accelerate: {deepspeed_config: {deepspeed_multinode_launcher: pdsh}}\ndeepspeed: {zero_optimization: {stage: 3}, comms_logger: {}}\n"
    )
    spec = launch_spec(load(text), GPUS)
    files = ["--config_file", "./accelerate.yaml", "--deepspeed_config_file", "./ds_config.json", "--deepspeed_hostfile", "./hostfile"]
    assert (spec.start, spec.options()) == ("login", [*files, "--main_process_ip", "a", "--main_process_port", "29500"])
    for launcher in ("openmpi", "mpich", "mvapich", "slurm"):
        with pytest.raises(RenderError, match=f"accelerate cannot start several machines with {launcher}"):
            launch_spec(load(text.replace("pdsh", launcher)), GPUS)


@pytest.mark.parametrize(
    ("cluster", "machine", "launcher"),
    [
        ("{}", GPUS, "local"),
        ("{hosts: {localhost: 2}}", GPUS, "local"),
        ("{hosts: {a: 2}}", GPUS, "ssh"),
        ("{hosts: {a: 2}}", machines.machine(host=Host(scheduler="slurm")), "slurm"),
        ("{hosts: {a: 2}, launcher: pdsh}", machines.machine(host=Host(scheduler="slurm")), "pdsh"),
    ],
)
def test_launcher_follows_from_where_the_ranks_run(cluster: str, machine: Machine, launcher: str) -> None:
    assert launch_spec(plan(cluster), machine).launcher == launcher


@pytest.mark.parametrize(
    ("cluster", "machine", "cpu"),
    [
        ("{hosts: {a: 2}}", NO_GPU, False),
        ("{hosts: {a: 2}, cpu_ranks: 2}", NO_GPU, True),
        ("{hosts: {a: 2}, env: {DS_ACCELERATOR: cpu}}", GPUS, True),
        ("{hosts: {a: 2, b: 2}}", machines.machine(host=Host(name="b")), True),
        ("{}", NO_GPU, True),
        ("{env: {DS_ACCELERATOR: cuda}}", NO_GPU, False),
    ],
)
def test_login_machine_without_gpu_does_not_make_cpu_ranks(cluster: str, machine: Machine, cpu: bool) -> None:
    assert launch_spec(plan(cluster), machine).cpu is cpu


def test_login_machine_is_not_judged_in_place_of_the_hosts() -> None:
    login = machines.machine(source="this machine", host=Host(name="login"))
    far = "{hosts: {a: 2, b: 2}, env: {NCCL_SOCKET_IFNAME: ib7}}"
    assert Target(plan(far), login).hosts_machine is None
    recorded = replace(GPUS, recorded=True)
    assert Target(plan(far), recorded).hosts_machine == recorded, "it stands for the hosts"
    assert Target(plan(), login).hosts_machine == login
    assert Target(plan("{hosts: {login: 2, b: 2}}"), login).hosts_machine == login


def test_torchrun_ranks_see_the_chosen_slots() -> None:
    spec = launch_spec(plan("{hosts: {a: 4, b: 4}, launcher: torchrun, include: 'a@b:1,3'}"), GPUS)
    assert "CUDA_VISIBLE_DEVICES" not in spec.environment(node=0)
    assert spec.environment(node=1)["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert spec.options(node=1)[:4] == ["--nnodes", "2", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    "job", ["{script: t.py, args: ['${ARG_1}', 'x${A_B}y', '$${LITERAL}']}", "{command: [t.py, '${ARG_1}', 'x${A_B}y', '$${LITERAL}']}"]
)
def test_rendered_script_takes_holes_from_its_environment_or_refuses(job: str, tmp_path: Path) -> None:
    made = Target(load(f"version: 1\njob: {job[:-1]}, python: /t/python}}\n", base=str(tmp_path)), NO_GPU)
    text = next(file.text for file in artifacts(made) if file.name == "launch.sh")
    shown = re.sub(r"\S*(?:/t/python|exec)\b", "printf '%s\\\\n'", text)
    refused = subprocess.run(["sh", "-c", shown], env={"ARG_1": "1"}, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "A_B: a hole of the Plan is open" in refused.stderr
    run = subprocess.run(["sh", "-c", shown], env={"ARG_1": "a b", "A_B": "$c"}, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-3:] == ["a b", "x$cy", "${LITERAL}"]
