"""The SLURM script and the Kubernetes manifest: their content, and that a shell and the published schemas accept them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dstui.jobs.store.record_forms import SHIM, sound
from dstui.plan import Plan, PlanError, load
from dstui.render.artifacts import Artifact, kubernetes_artifact, slurm_artifact
from dstui.render.kubernetes import STARTS_RANK
from dstui.render.launch import RenderError
from dstui.render.target import Target
from tests import machines
from tests.machines import NO_GPU, gpus

GPUS = machines.machine(*gpus(4))
CONFIG = "{train_micro_batch_size_per_gpu: 1}"


def plan(cluster: str, more: str = "", job: str = "{script: train.py, args: [--config, '{ds_config}', \"it's\"]}") -> Plan:
    return load(f"version: 1\nname: Llama 2 SFT\njob: {job}\ncluster: {cluster}\n{more}deepspeed: {CONFIG}\n", base="/data/x y")


def test_slurm_script_requests_the_plans_nodes_and_gpus_and_is_complete() -> None:
    text = slurm_artifact(Target(plan("{hosts: {a: 8, b: 8}, env: {NCCL_DEBUG: INFO}, include: a@b}"), GPUS)).text
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, re.M))
    assert (directives["nodes"], directives["gpus-per-node"], directives["ntasks-per-node"]) == ("2", "8", "1")
    assert directives["job-name"] == "llama-2-sft" and "no-requeue" in directives
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""
    assert "--no_ssh" in text and "--launcher" not in text and "--include" not in text, "SLURM chooses the nodes"
    assert '--node_rank "$SLURM_NODEID" --master_addr "$master" --master_port "$port"' in text
    assert "cd '/data/x y'" in text and "NCCL_DEBUG=INFO" in text


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("run: {restarts: {max: 2}}\n", "# run.restarts.args of the Plan would be appended"),
        ("run: {restarts: {max: 1, args: [--resume, last]}}\n", '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || set -- --resume last'),
        ("run: {restarts: {max: 1, args: [--resume, '{checkpoint}']}}\n", "the script must find its checkpoint itself"),
    ],
)
def test_script_resumes_after_a_requeue(run: str, words: str) -> None:
    text = slurm_artifact(Target(plan("{hosts: {a: 2}}", run), GPUS)).text
    assert words in text and "trap requeue USR1\n" in text and "#SBATCH --requeue\n#" in text


def test_job_without_restarts_is_never_requeued() -> None:
    text = slurm_artifact(Target(plan("{hosts: {a: 2}}"), GPUS)).text
    assert "#SBATCH --no-requeue\n" in text
    assert not any(word in text for word in ("trap", "USR1", "scontrol requeue", "#SBATCH --requeue"))


NAMED = "{hosts: {localhost: 8}}"
NUMBERED = "{num_nodes: 2, num_gpus: 8}"


@pytest.mark.parametrize("made", [slurm_artifact, kubernetes_artifact])
@pytest.mark.parametrize("cluster", [NAMED, NUMBERED, "{num_gpus: 8}"])
def test_rendering_does_not_depend_on_the_machine(made: Callable[[Target], Artifact], cluster: str) -> None:
    found = {made(Target(plan(cluster), machine)).text for machine in (NO_GPU, GPUS)}
    assert len(found) == 1
    text = found.pop()
    assert "DS_ACCELERATOR=" not in text and "localhost" not in text and "node 0" not in text
    assert "--gpus-per-node=8" in text or "nvidia.com/gpu: 8" in text
    assert "# assumed: each node has 8 GPUs" in text, "assumptions are at the top"


@pytest.mark.parametrize("made", [slurm_artifact, kubernetes_artifact])
def test_cpu_ranks_are_those_of_the_plan(made: Callable[[Target], Artifact]) -> None:
    artifact = made(Target(plan("{cpu_ranks: 3, env: {DS_ACCELERATOR: cpu}}"), GPUS))
    assert "gpus-per-node" not in artifact.text and "nvidia.com/gpu" not in artifact.text
    assert any("3 ranks on CPUs" in note for note in artifact.notes)


def test_slurm_section_becomes_sbatch_options() -> None:
    slurm = "{partition: gpu, time: 2-12:00:00, gres: gpu:a100:8, cpus_per_task: 64, extra: [--mail-type=END], setup: [module load cuda]}"
    text = slurm_artifact(Target(plan(f"{{num_nodes: 2, num_gpus: 8, slurm: {slurm}}}"), NO_GPU)).text
    options = {"partition=gpu", "time=2-12:00:00", "gres=gpu:a100:8", "cpus-per-task=64", "mail-type=END"}
    assert options <= set(re.findall(r"^#SBATCH --(\S+)$", text, re.M))
    assert "gpus-per-node" not in text and "##SBATCH" not in text
    assert text.index("module load cuda\n") < text.index("set -eu")
    with pytest.raises(PlanError, match=r"cluster.slurm.partitoin: unknown key; did you mean 'partition'"):
        plan("{slurm: {partitoin: gpu}}")
    with pytest.raises(PlanError, match=r"cluster.slurm.partition: (?s:.*) cannot be the value of an option of sbatch"):
        plan('{slurm: {partition: "a\\n#SBATCH --uid=0"}}')


def test_cpus_come_from_plan_or_recorded_node_or_a_line_to_fill_in() -> None:
    node = replace(GPUS, recorded=True, host=replace(GPUS.host, cpus=128))
    assert "#SBATCH --cpus-per-task=64\n" in slurm_artifact(Target(plan("{num_gpus: 2}"), node)).text
    unknown = slurm_artifact(Target(plan("{num_gpus: 2}"), GPUS))
    assert "\n##SBATCH --cpus-per-task=N\n" in unknown.text
    assert any(note.startswith("to fill in: the line ##SBATCH --cpus-per-task=N") for note in unknown.notes)


def test_settings_unsupported_by_slurm_and_kubernetes_are_refused() -> None:
    for made in (slurm_artifact, kubernetes_artifact):
        with pytest.raises(RenderError, match="same number of slots"):
            made(Target(plan("{hosts: {a: 2, b: 4}}"), GPUS))
        with pytest.raises(RenderError, match=r"give cluster\.num_gpus"):
            made(Target(plan("{}"), NO_GPU))


def manifest(target: Target) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ConfigMap and the PyTorchJob."""
    configmap, job = yaml.safe_load_all(kubernetes_artifact(target, v1=True).text)
    return configmap, job


def test_manifest_is_a_trainjob_with_pod_patches_for_v2_2_and_later() -> None:
    """Field names and required fields: trainer.kubeflow.org_trainjobs.yaml (kubeflow/trainer v2.2.0, v2.3.0)."""
    target = Target(plan("{hosts: {a: 2, b: 2}}", "run: {restarts: {max: 3}}\n"), GPUS)
    artifact = kubernetes_artifact(target)
    configmap, job = yaml.safe_load_all(artifact.text)
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    spec = job["spec"]
    assert spec.keys() == {"runtimeRef", "trainer", "runtimePatches"} and spec["runtimeRef"] == {"name": "torch-distributed"}
    trainer = spec["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 2)
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 2}}
    assert not any(variable["name"].startswith("PET_") for variable in trainer["env"]), "Kubeflow Trainer refuses its own names"
    (patch,) = spec["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert (patch["manager"] != "", replicated["name"], pod["containers"][0]["name"]) == (True, "node", "node")
    assert pod["containers"][0].keys() == {"name", "volumeMounts"}
    assert {volume["name"] for volume in pod["volumes"]} == {"shm", "config"}
    assert pod["volumes"][1]["configMap"]["name"] == configmap["metadata"]["name"]
    assert '--node-rank "$PET_NODE_RANK" --master-addr "$PET_MASTER_ADDR"' in trainer["command"][2]
    assert any("run.restarts" in note for note in artifact.notes)


KUBERNETES = (
    "image: 'r/i:1', namespace: ml, resources: {memory: 64Gi}, volumes: {/data: claim}, secrets: {HF_TOKEN: hf/token}, "
    "node_selector: {gpu: h100}, tolerations: ['gpu=true:NoSchedule', spot], shm: 16Gi"
)


@pytest.mark.parametrize(
    ("trainer", "place"),
    [
        ("2.0", ("podSpecOverrides", 0)),
        ("2.1", ("podTemplateOverrides", 0, "spec")),
        ("2.2", ("runtimePatches", 0, "trainingRuntimeSpec", "template", "spec", "replicatedJobs", 0, *("template", "spec") * 2)),
    ],
)
def test_each_trainer_release_gets_pod_settings_by_its_own_key(trainer: str, place: tuple[str | int, ...]) -> None:
    """trainer.kubeflow.org_trainjobs.yaml of kubeflow/trainer v2.0.0, v2.1.0 and v2.2.0; tests/long/test_kubernetes.py asks their models."""
    asked = f"{{num_nodes: 2, num_gpus: 8, kubernetes: {{trainer: '{trainer}', {KUBERNETES}}}}}"
    configmap, job = yaml.safe_load_all(kubernetes_artifact(Target(plan(asked), NO_GPU)).text)
    spec = job["spec"]
    assert spec.keys() == {"runtimeRef", "trainer", place[0]}
    assert configmap["metadata"]["namespace"] == job["metadata"]["namespace"] == "ml"
    assert spec["trainer"]["resourcesPerNode"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": 8}
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}} in spec["trainer"]["env"]
    pod = spec
    for key in place:
        pod = pod[key]
    assert pod["nodeSelector"] == {"gpu": "h100"} and pod["tolerations"][1] == {"key": "spot", "operator": "Exists"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"]["sizeLimit"] == "16Gi"
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert volumes[mounts["/data"]]["persistentVolumeClaim"] == {"claimName": "claim"}


def test_secret_is_named_and_never_written() -> None:
    with pytest.raises(PlanError, match="never the value itself") as refused:
        plan("{num_gpus: 1, kubernetes: {secrets: {HF_TOKEN: hf_abcdefghijk}}}")
    assert "hf_abc" not in str(refused.value).partition("\n")[0]


def test_rank_of_a_pod_leaves_its_log_and_record(tmp_path: Path) -> None:
    for name in ("logs", "ranks"):
        (tmp_path / name).mkdir()
    env = {**os.environ, "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "DSTUI_RUN": str(tmp_path), "DSTUI_TAG": "k8s-x"}
    ran = subprocess.run(["sh", "-c", STARTS_RANK, "rank.sh", "sh", "-c", "echo hello; exit 3"], env=env, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (3, b"[rank3]: hello\n"), ran.stderr
    assert (tmp_path / "logs/rank_3.log").read_text() == "hello\n"
    record = json.loads((tmp_path / "ranks/rank_3.json").read_text())
    assert sound(record, SHIM) and (record["exit_code"], record["tag"]) == (3, "k8s-x")


def test_manifest_is_a_pytorchjob_by_its_published_schema() -> None:
    """Required fields and allowed values: kubeflow.org_pytorchjobs.yaml (training-operator v1.8)."""
    configmap, job = manifest(Target(plan("{hosts: {a: 8, b: 8, c: 8}, master_port: 23456}", "run: {restarts: {max: 3}}\n"), GPUS))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    assert set(job["spec"]) <= {"elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs", "runPolicy"}
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 3}
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {"Master": 1, "Worker": 2}
    for each in replicas.values():
        assert each["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        pod = each["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch", "the operator looks for this name"
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        assert all(isinstance(variable["value"], str) for variable in container["env"])
        assert container["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]
        mounts, volumes = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}, {v["name"]: v for v in pod["volumes"]}
        assert mounts.keys() == volumes.keys() and mounts["shm"] == "/dev/shm"
        assert volumes["shm"] == {"name": "shm", "emptyDir": {"medium": "Memory"}}
        assert volumes["config"]["configMap"]["name"] == configmap["metadata"]["name"]
    assert configmap["data"] == {"ds_config.json": '{\n  "train_micro_batch_size_per_gpu": 1\n}\n'}


def test_pod_command_is_torchrun_with_the_operators_variables() -> None:
    _, job = manifest(Target(plan("{hosts: {a: 2, b: 2}}"), GPUS))
    *shell, command = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert shell == ["sh", "-c"]
    fake = command.replace("exec python -m torch.distributed.run", "printf '%s|'").replace("cd '/data/x y' && ", "")
    ran = subprocess.run(
        ["sh", "-c", fake], env={"RANK": "1", "MASTER_ADDR": "m", "MASTER_PORT": "9"}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == (
        "--nnodes|2|--nproc-per-node|2|--node-rank|1|--master-addr|m|--master-port|9|train.py|--config|/etc/deepspeed/ds_config.json|it's|"
    )
