"""Manifests for Kubernetes: ten Plans against the published models of each release of Kubeflow Trainer, and a pod's command really run.

The models are those of the package kubeflow-trainer-api, which is generated from the CustomResourceDefinitions: what they do not know, they drop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dstui.plan import load
from dstui.render.artifacts import kubernetes_artifact
from dstui.render.kubernetes import CONFIG
from dstui.render.target import Target
from tests.command import dstui
from tests.machines import NO_GPU

RELEASES = {"2.0.0": "2.0", "2.0.1": "2.0", "2.1.0": "2.1", "2.2.0": "2.2", "2.3.0": "2.2"}
ASKED = (
    "image: 'registry/image:1', namespace: ml, resources: {memory: 64Gi, cpu: '16'}, volumes: {/data: claim, /code: other}, "
    "secrets: {HF_TOKEN: hf/token}, node_selector: {gpu: h100}, tolerations: ['nvidia.com/gpu=true:NoSchedule', spot, 'a:NoExecute'], "
    "shm: 16Gi, job_folder: /data/runs"
)
CLUSTERS = (
    "num_gpus: 1",
    "num_gpus: 8",
    "num_nodes: 2, num_gpus: 8",
    "hosts: {a: 4, b: 4}",
    "num_nodes: 16, num_gpus: 8, env: {NCCL_DEBUG: INFO}",
    "cpu_ranks: 3, env: {DS_ACCELERATOR: cpu}",
    "num_nodes: 2, num_gpus: 2, master_port: 1234",
    "num_nodes: 3, num_gpus: 1, cpu_binding: deepspeed",
    "num_gpus: 8, launcher: sbatch",
    'num_nodes: 2, num_gpus: 4, env: {A: "it\'s $x"}',
)
ROUND = """\
import json, sys
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob as TrainJob
print(json.dumps([TrainJob.from_dict(job).to_dict() for job in json.load(sys.stdin)]))
"""


def trainjobs(trainer: str) -> list[dict[str, Any]]:
    """The TrainJob of each Plan, bare and with everything that cluster.kubernetes can say."""
    found = []
    for number, cluster in enumerate(CLUSTERS):
        for asked in ("", f", {ASKED}"):
            job = "{module: pkg.train}" if number % 2 else "{script: train.py, args: ['{ds_config}']}"
            text = f"version: 1\nname: p{number}\njob: {job}\ncluster: {{{cluster}, kubernetes: {{trainer: '{trainer}'{asked}}}}}\n"
            plan = load(text + "run: {restarts: {max: 1}}\ndeepspeed: {train_micro_batch_size_per_gpu: 1}\n", base="/x")
            found.append(list(yaml.safe_load_all(kubernetes_artifact(Target(plan, NO_GPU)).text))[1])
    return found


def judged(wheel: Path, jobs: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What the models of a release make of manifests."""
    env = {**os.environ, "PYTHONPATH": str(wheel)}
    return subprocess.run([sys.executable, "-c", ROUND], input=json.dumps(jobs), env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("release", RELEASES)
def test_the_models_of_each_release_know_all_of_a_trainjob(release: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), f"kubeflow-trainer-api=={release}"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("needs an index of packages that has kubeflow-trainer-api")
    (wheel,) = tmp_path.glob("*.whl")
    jobs = trainjobs(RELEASES[release])
    answer = judged(wheel, jobs)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == jobs
    for other in {*RELEASES.values()} - {RELEASES[release]}:
        answer = judged(wheel, trainjobs(other))
        assert answer.returncode or json.loads(answer.stdout) != trainjobs(other), f"{release} takes what is for {other}"


def test_a_pod_leaves_a_job_folder_that_is_shown_and_diagnosed(tmp_path: Path) -> None:
    """The command of the manifest with the real torchrun, in a folder in the place of the volume and one in that of the ConfigMap."""
    (tmp_path / "train.py").write_text("import os\nprint('step 1 loss 2.0')\nassert os.environ['RANK'] == '0', 'bad shard'\n")
    volume, config = tmp_path / "volume", tmp_path / "config"
    text = "version: 1\nname: sft\njob: {script: train.py}\ncluster: {cpu_ranks: 2, env: {DS_ACCELERATOR: cpu}, kubernetes: {job_folder: /v/runs}}\n"
    plan = load(text + "deepspeed: {train_micro_batch_size_per_gpu: 1}\n", base=str(tmp_path))
    configmap, job = yaml.safe_load_all(kubernetes_artifact(Target(plan, NO_GPU)).text)
    config.mkdir()
    for name, content in configmap["data"].items():
        (config / name).write_text(content)
    command = job["spec"]["trainer"]["command"][2].replace(CONFIG, str(config)).replace("/v/runs", str(volume))
    told = {"PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "29533"}
    env = {**os.environ, **told, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DS_ACCELERATOR": "cpu"}
    ran = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "[rank1]: AssertionError: bad shard" in ran.stdout, ran.stdout + ran.stderr
    folder = volume / "sft"
    assert "bad shard" in (folder / "logs/rank_1.log").read_text() and "bad shard" not in (folder / "logs/rank_0.log").read_text()
    records = [json.loads((folder / f"ranks/rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert (records[1]["exit_code"], records[1]["rank"], records[1]["world_size"], records[1]["tag"]) == (1, 1, 2, "k8s-sft")
    found = json.loads(dstui("diagnose", str(folder), "--json").stdout)
    assert (found["cause"], found["first_failing_rank"]) == ("USER-PY", 1)
    assert "bad shard" in dstui("logs", str(folder), "--rank", "1").stdout
    assert "bad shard" in dstui("diagnose", str(folder)).stdout
