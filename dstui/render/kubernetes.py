"""Render Kubernetes manifests for a Plan, with ds_config.json in a ConfigMap: a TrainJob of Kubeflow Trainer, or the older PyTorchJob.

Both controllers tell each pod its number and the rendezvous address; torchrun in each pod starts the ranks of its GPUs. Sources: the
CustomResourceDefinitions of kubeflow/trainer v2.2 and v2.3 (TrainJob, trainer.kubeflow.org/v1alpha1; before v2.2 pods were changed by
podTemplateOverrides, which later releases refuse) and of kubeflow/training-operator v1.8 and v1.9 (PyTorchJob, kubeflow.org/v1).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from dstui.base.text import sanitise
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.render.accelerate import PORT, without_spelling
from dstui.render.quoting import quote_word, variable
from dstui.render.sbatch import ClusterScript, for_cluster, header_comment, identifier
from dstui.render.spec import LaunchSpec

CONFIG = "/etc/deepspeed"
IMAGE = "REPLACE-WITH-YOUR-IMAGE"
HEAD = """\
# kubectl apply -f job.yaml: needs CONTROLLER. Give your image: it holds Python, torch, DeepSpeed and the
# script at WORKDIR, or mount a volume there. Keys (HF_TOKEN, WANDB_API_KEY) belong into a Secret: envFrom: [{secretRef: {name: …}}].
# /dev/shm is memory of its own: the 64 MB that a container has by default are too little for NCCL and data loaders.
"""


RUNTIME = "torch-distributed"
"""The runtime that Kubeflow Trainer installs for torchrun. Its pods are those of the replicated job `node`, with the container `node`."""
MANAGER = "dstui.io/render"
"""The manager name of the patch to the runtime's pods; a required field."""
TRAINER = ("PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
OPERATOR = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables by which each controller tells a pod its number and the rendezvous address."""


def render_trainjob(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, configs: Mapping[str, str]) -> ClusterScript:
    """Render the TrainJob. `machine`: a recorded node, if there is one; `configs`: the configuration files. Raises RenderError."""
    spec, slots, notes = for_cluster(plan, machine, pool)
    name = identifier(plan, spec)
    name = name if name[0].isalpha() else f"job-{name}"  # a TrainJob's name is a DNS label, which begins with a letter
    if plan.run.restarts.max:
        notes.append("left out: run.restarts: how often a TrainJob's pods start again is its runtime's to say (backoffLimit)")
    if plan.cluster.master_port:
        notes.append("left out: cluster.master_port: Kubeflow Trainer chooses the port")
    container = {"name": "node", "volumeMounts": MOUNTS}
    pod = {"containers": [container], "volumes": _volumes(name)}
    patched = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}}}
    trainer = {
        "image": IMAGE,
        "numNodes": len(spec.hosts),
        "numProcPerNode": slots,
        "command": ["sh", "-c", _command(plan, spec, TRAINER)],
        "env": _variables(plan, spec),
        **({} if spec.cpu else {"resourcesPerNode": {"limits": {"nvidia.com/gpu": slots}}}),
    }
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": RUNTIME},
            "trainer": trainer,
            "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": patched}],
        },
    }
    needs = f"Kubeflow Trainer v2.2 or newer with its runtime {RUNTIME} (--only k8s-v1: a PyTorchJob)"
    return _manifest(plan, spec, (_configmap(name, configs), job), notes, needs)


def render_pytorchjob(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, configs: Mapping[str, str]) -> ClusterScript:
    """Render the PyTorchJob. `machine`: a recorded node, if there is one; `configs`: the configuration files. Raises RenderError."""
    spec, slots, notes = for_cluster(plan, machine, pool)
    name, pods = identifier(plan, spec), len(spec.hosts)
    pod = _pod(plan, spec, name, slots)
    policy = "OnFailure" if plan.run.restarts.max else "Never"
    replicas = {"Master": {"replicas": 1, "restartPolicy": policy, "template": pod}}
    if pods > 1:
        replicas["Worker"] = {"replicas": pods - 1, "restartPolicy": policy, "template": pod}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": plan.run.restarts.max}, "pytorchReplicaSpecs": replicas},
    }
    return _manifest(plan, spec, (_configmap(name, configs), job), notes, "Kubeflow's training operator (PyTorchJob)")


def _manifest(plan: Plan, spec: LaunchSpec, objects: Sequence[Mapping[str, Any]], notes: Sequence[str], needs: str) -> ClusterScript:
    """Return the objects as one file. `needs`: what the cluster must provide."""
    body = yaml.dump_all(map(without_spelling, objects), Dumper=_Dumper, sort_keys=False, width=140)
    head = HEAD.replace("CONTROLLER", needs).replace("WORKDIR", sanitise(spec.workdir))
    return ClusterScript(f"{header_comment(plan, notes)}\n{head}{body}", tuple(notes))


def _configmap(name: str, configs: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-config"}, "data": dict(configs)}


MOUNTS = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "config", "mountPath": CONFIG, "readOnly": True}]


def _volumes(name: str) -> list[dict[str, Any]]:
    return [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "config", "configMap": {"name": f"{name}-config"}}]


def _variables(plan: Plan, spec: LaunchSpec) -> list[dict[str, str]]:
    return [{"name": key, "value": value} for key, value in _environment(plan, spec).items()]


def _pod(plan: Plan, spec: LaunchSpec, name: str, slots: int) -> dict[str, Any]:
    """Return the pod of every replica."""
    gpus = {} if spec.cpu else {"resources": {"limits": {"nvidia.com/gpu": slots}}}
    container = {
        "name": "pytorch",  # the operator looks for this name
        "image": IMAGE,
        "command": ["sh", "-c", _command(plan, spec, OPERATOR)],
        "env": _variables(plan, spec),
        "ports": [{"name": "pytorchjob-port", "containerPort": plan.cluster.master_port or PORT}],
        **gpus,
        "volumeMounts": MOUNTS,
    }
    return {"spec": {"containers": [container], "volumes": _volumes(name)}}


def _command(plan: Plan, spec: LaunchSpec, told: tuple[str, str, str]) -> str:
    """Return the torchrun command. `told`: the variables with the number of the pod and the rendezvous address."""
    rank, address, port = map(variable, told)
    inside = replace(
        spec,
        launcher="torchrun",
        slots={f"pod-{number}": chosen for number, chosen in enumerate(spec.slots.values())},
        python=spec.python if spec.python != sys.executable or plan.job.python else "python",
        launcher_options=(),
        bindings=(),
        master_addr=address,
        master_port=port,
    )
    words = inside.argv(f"{CONFIG}/ds_config.json", rank)
    return f"{spec.refusals}cd {quote_word(spec.workdir)} && exec {' '.join(map(quote_word, words))}"


def _environment(plan: Plan, spec: LaunchSpec) -> Mapping[str, str]:
    """Return the environment of the ranks without the variables that the operator or the node sets."""
    theirs = ("LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
    env = spec.environment(f"{CONFIG}/ds_config.json")
    return {name: value for name, value in env.items() if name not in theirs or name in plan.cluster.env}


class _Dumper(yaml.SafeDumper):
    """Dumps long texts as blocks, and repeated values in full instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
