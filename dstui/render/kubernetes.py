"""A Kubernetes manifest for a Plan: a PyTorchJob of Kubeflow's training operator (kubeflow.org/v1), with ds_config.json in a ConfigMap.

The operator gives every pod RANK (of the pod), MASTER_ADDR and MASTER_PORT; torchrun in each pod starts the ranks of its GPUs.
Sources: the CustomResourceDefinition of kubeflow/training-operator v1.8, docs of its PyTorchJob.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
# kubectl apply -f job.yaml: needs Kubeflow's training operator (PyTorchJob). Give your image: it holds Python, torch, DeepSpeed and the
# script at WORKDIR, or mount a volume there. Keys (HF_TOKEN, WANDB_API_KEY) belong into a Secret: envFrom: [{secretRef: {name: …}}].
# /dev/shm is memory of its own: the 64 MB that a container has by default are too little for NCCL and data loaders.
"""


def render_kubernetes(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, configs: Mapping[str, str]) -> ClusterScript:
    """Render the manifest. `machine`: a recorded node, where there is one; `configs`: the configuration files. Raises RenderError."""
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
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-config"}, "data": dict(configs)}
    body = yaml.dump_all(map(without_spelling, (configmap, job)), Dumper=_Dumper, sort_keys=False, width=140)
    return ClusterScript(f"{header_comment(plan, notes)}\n{HEAD.replace('WORKDIR', sanitise(spec.workdir))}{body}", tuple(notes))


def _pod(plan: Plan, spec: LaunchSpec, name: str, slots: int) -> dict[str, Any]:
    """Return the pod of every replica."""
    gpus = {} if spec.cpu else {"resources": {"limits": {"nvidia.com/gpu": slots}}}
    container = {
        "name": "pytorch",  # the operator looks for this name
        "image": IMAGE,
        "command": ["sh", "-c", _command(plan, spec)],
        "env": [{"name": key, "value": value} for key, value in _environment(plan, spec).items()],
        "ports": [{"name": "pytorchjob-port", "containerPort": plan.cluster.master_port or PORT}],
        **gpus,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "config", "mountPath": CONFIG, "readOnly": True}],
    }
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "config", "configMap": {"name": f"{name}-config"}}]
    return {"spec": {"containers": [container], "volumes": volumes}}


def _command(plan: Plan, spec: LaunchSpec) -> str:
    """Return the torchrun command, which learns from the operator's variables which pod it is in."""
    inside = replace(
        spec,
        launcher="torchrun",
        slots={f"pod-{number}": chosen for number, chosen in enumerate(spec.slots.values())},
        python=spec.python if spec.python != sys.executable or plan.job.python else "python",
        launcher_options=(),
        bindings=(),
        master_addr=variable("MASTER_ADDR"),
        master_port=variable("MASTER_PORT"),
    )
    words = inside.argv(f"{CONFIG}/ds_config.json", variable("RANK"))
    return f"{spec.refusals}cd {quote_word(spec.workdir)} && exec {' '.join(map(quote_word, words))}"


def _environment(plan: Plan, spec: LaunchSpec) -> Mapping[str, str]:
    """Return the environment of the ranks without what the operator or the node sets."""
    theirs = ("LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
    env = spec.environment(f"{CONFIG}/ds_config.json")
    return {name: value for name, value in env.items() if name not in theirs or name in plan.cluster.env}


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks; what is written twice is written twice, for people."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
