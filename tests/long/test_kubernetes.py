"""Manifests for Kubernetes: ten Plans against the published models of each release of Kubeflow Trainer, and a pod's command run for real.

The models are those of the package kubeflow-trainer-api, generated from the CustomResourceDefinitions: they drop what they do not know.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dstui.plan import load
from dstui.render.artifacts import kubernetes_artifact
from dstui.render.kubernetes import CONFIG, STARTS_RANK
from dstui.render.target import Target
from tests.command import dstui
from tests.machines import NO_GPU
from tests.waiting import wait_for

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
NOBODY = 65534
BECOME = f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.execvp('sh', ['sh', '-c', sys.argv[1]])"
ROUND = """\
import json, sys
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob as TrainJob
print(json.dumps([TrainJob.from_dict(job).to_dict() for job in json.load(sys.stdin)]))
"""


def trainjobs(trainer: str) -> list[dict[str, Any]]:
    """Return the TrainJob of each Plan, without and with everything that cluster.kubernetes can set."""
    found = []
    for number, cluster in enumerate(CLUSTERS):
        for asked in ("", f", {ASKED}"):
            job = "{module: pkg.train}" if number % 2 else "{script: train.py, args: ['{ds_config}']}"
            text = f"version: 1\nname: p{number}\njob: {job}\ncluster: {{{cluster}, kubernetes: {{trainer: '{trainer}'{asked}}}}}\n"
            plan = load(text + "run: {restarts: {max: 1}}\ndeepspeed: {train_micro_batch_size_per_gpu: 1}\n", base="/x")
            found.append(list(yaml.safe_load_all(kubernetes_artifact(Target(plan, NO_GPU)).text))[1])
    return found


def judged(wheel: Path, jobs: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Validate manifests with the models of a release."""
    env = {**os.environ, "PYTHONPATH": str(wheel)}
    return subprocess.run([sys.executable, "-c", ROUND], input=json.dumps(jobs), env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("release", RELEASES)
def test_models_of_each_release_know_every_trainjob_field(release: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), f"kubeflow-trainer-api=={release}"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("needs a package index with kubeflow-trainer-api")
    (wheel,) = tmp_path.glob("*.whl")
    jobs = trainjobs(RELEASES[release])
    answer = judged(wheel, jobs)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == jobs
    for other in {*RELEASES.values()} - {RELEASES[release]}:
        answer = judged(wheel, trainjobs(other))
        assert answer.returncode or json.loads(answer.stdout) != trainjobs(other), f"{release} accepts what is for {other}"


def pod(place: Path, script: str) -> str:
    """Return the command of a pod with two ranks of a script; `place` holds folders in place of the volume and the ConfigMap."""
    (place / "train.py").write_text(script)
    (place / "config").mkdir()
    text = "version: 1\nname: sft\njob: {script: train.py}\ncluster: {cpu_ranks: 2, env: {DS_ACCELERATOR: cpu}, kubernetes: {job_folder: /v/runs}}\n"
    plan = load(text + "deepspeed: {train_micro_batch_size_per_gpu: 1}\n", base=str(place))
    configmap, job = yaml.safe_load_all(kubernetes_artifact(Target(plan, NO_GPU)).text)
    for name, content in configmap["data"].items():
        (place / "config" / name).write_text(content)
    command: str = job["spec"]["trainer"]["command"][2]
    return command.replace(CONFIG, str(place / "config")).replace("/v/runs", str(place / "volume"))


def pod_variables() -> dict[str, str]:
    """Return the variables that the controller gives a pod."""
    told = {"PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "29533"}
    return {**os.environ, **told, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DS_ACCELERATOR": "cpu"}


def test_pod_leaves_a_job_folder_that_is_shown_and_diagnosed(tmp_path: Path) -> None:
    """Runs the command of the manifest with the real torchrun."""
    command = pod(tmp_path, "import os\nprint('step 1 loss 2.0')\nassert os.environ['RANK'] == '0', 'bad shard'\n")
    ran = subprocess.run(["sh", "-c", command], env=pod_variables(), capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "[rank1]: AssertionError: bad shard" in ran.stdout, ran.stdout + ran.stderr
    folder = tmp_path / "volume/sft"
    assert "bad shard" in (folder / "logs/rank_1.log").read_text() and "bad shard" not in (folder / "logs/rank_0.log").read_text()
    records = [json.loads((folder / f"ranks/rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert (records[1]["exit_code"], records[1]["rank"], records[1]["world_size"], records[1]["tag"]) == (1, 1, 2, "k8s-sft")
    found = json.loads(dstui("diagnose", str(folder), "--json").stdout)
    assert (found["cause"], found["first_failing_rank"]) == ("USER-PY", 1)
    assert "bad shard" in dstui("logs", str(folder), "--rank", "1").stdout
    assert "bad shard" in dstui("diagnose", str(folder)).stdout


def test_ranks_in_a_pod_are_claimed_neither_dead_nor_alive() -> None:
    """Runs as another user, in PID and UTS namespaces, as a pod does."""
    words = ["unshare", "--pid", "--fork", "--uts", "--mount-proc", "--kill-child"]
    if subprocess.run([*words, "hostname", "sft-node-0-0"], capture_output=True, check=False).returncode:
        pytest.skip("needs permission to create namespaces")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        command = pod(place, "import time\nfor n in range(1, 600):\n    print('step', n, 'loss', 2 / n, flush=True)\n    time.sleep(1)\n")
        (place / "volume").mkdir()
        os.chown(place / "volume", NOBODY, NOBODY)
        inside = ["sh", "-c", 'hostname sft-node-0-0; exec "$@"', "-", sys.executable, "-c", BECOME, command]
        with subprocess.Popen(
            [*words, *inside], env={**pod_variables(), "HOME": name}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as ran:
            try:
                folder = place / "volume/sft"
                wait_for(lambda: (log := folder / "logs/rank_1.log").exists() and "step 2" in log.read_text(), 60)
                assert_reports(folder)
            finally:
                ran.kill()
        assert_reports(folder)  # the pod is gone and could not record an end


def assert_reports(folder: Path) -> None:
    """Assert that dstui reports only what it sees of a job in pods that recorded no end."""
    listed = dstui("runs", "--in", str(folder.parent)).stdout
    assert "running" in listed and "kubectl get pods" in listed and "another user's (nobody)" in listed, listed
    assert "Nothing has failed so far; its ranks have recorded no end" in dstui("diagnose", str(folder)).stdout
    assert "step 2" in dstui("logs", str(folder), "--rank", "1").stdout
    refused = dstui("stop", str(folder))
    assert refused.returncode and "it is read-only here, and nothing was done" in refused.stderr
    words = [sys.executable, "-m", "dstui", "attach", "--plain", str(folder)]
    with pytest.raises(subprocess.TimeoutExpired) as attached:
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=4)
    shown = (attached.value.stdout or b"").decode()
    assert "kubectl get pods" in shown and " running, " in shown and " running, 0.0 s" not in shown, shown


def test_no_line_of_ranks_that_end_at_once_is_lost(tmp_path: Path) -> None:
    for name in ("logs", "ranks"):
        (tmp_path / name).mkdir()
    told = {**os.environ, "WORLD_SIZE": "200", "DSTUI_RUN": str(tmp_path), "DSTUI_TAG": "k8s-x"}
    words = ["sh", "-c", STARTS_RANK, "rank.sh", "echo", "hello"]
    each = [{**told, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(200)]
    running = [subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for env in each]
    assert [one.communicate()[0] for one in running] == [f"[rank{rank}]: hello\n" for rank in range(200)]
