"""Kubernetes manifests for a Plan, with ds_config.json in a ConfigMap: a TrainJob of Kubeflow Trainer, or the older PyTorchJob.

Both controllers give each pod its number and the rendezvous address; torchrun in each pod starts the ranks of its GPUs. Sources: the
CustomResourceDefinitions of kubeflow/trainer v2.0 to v2.3 (TrainJob, trainer.kubeflow.org/v1alpha1; each of the first three changes pods by
another key) and of kubeflow/training-operator v1.8 and v1.9 (PyTorchJob, kubeflow.org/v1).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from dstui.base.text import sanitise
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.locks import without_layers
from dstui.render.accelerate import PORT, without_spelling
from dstui.render.quoting import quote_word, variable
from dstui.render.sbatch import ClusterScript, for_cluster, header_comment, identifier
from dstui.render.spec import LaunchSpec

CONFIG = "/etc/deepspeed"
IMAGE = "REPLACE-WITH-YOUR-IMAGE"
RANK_SCRIPT = "rank.sh"
BEGAN = "BEGAN"
"""In the first status.json: the pod writes the time instead."""
HEAD = """\
# kubectl apply -f job.yaml: needs CONTROLLER. The image holds Python, torch, DeepSpeed and the script at
# WORKDIR, or a volume is mounted there. cluster.kubernetes in the Plan sets image, volumes, secrets and more.
"""
STARTS_RANK = """\
#!/bin/sh
# Run one rank: its lines go into the job folder and, with its number, into the log of the pod.
log="$DSTUI_RUN/logs/rank_$RANK.log" started=$(date +%s)
record() {
  printf '{"rank": %s, "world_size": %s, "local_rank": %s, "host": "%s", "pid": %s, "tag": "%s", "started": %s, %s}\\n' \
    "$RANK" "$WORLD_SIZE" "$LOCAL_RANK" "$(hostname)" "$rank" "$DSTUI_TAG" "$started" "$1" >"$DSTUI_RUN/ranks/rank_$RANK.json"
}
: >>"$log"  # before tail opens it
"$@" >>"$log" 2>&1 &
rank=$!
record '"ended": null, "exit_code": null'
tail -n +1 -f --pid="$rank" "$log" | sed -u "s/^/[rank$RANK]: /" &
trap 'kill -TERM "$rank"' TERM INT
wait "$rank"
code=$?
while kill -0 "$rank" 2>/dev/null; do wait "$rank"; code=$?; done
record "\\"ended\\": $(date +%s), \\"exit_code\\": $code"
wait
exit "$code"
"""
NODE = "node"
"""The name of the replicated job, and of its container, in the runtimes of Kubeflow Trainer."""
MANAGER = "dstui.io/render"
"""The manager name of the patch to the runtime's pods; a required field."""
TRAINER = ("PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
OPERATOR = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""The variables in which each controller gives a pod its number and the rendezvous address."""


def render_trainjob(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, configs: Mapping[str, str]) -> ClusterScript:
    """Render the TrainJob. `machine`: a recorded node, if there is one; `configs`: the configuration files. Raises RenderError."""
    spec, slots, notes = for_cluster(plan, machine, pool)
    name = identifier(plan, spec)
    name = name if name[0].isalpha() else f"job-{name}"  # a TrainJob's name is a DNS label, which begins with a letter
    if plan.run.restarts.max:
        notes.append("left out: run.restarts: the runtime of a TrainJob decides how often its pods start again (backoffLimit)")
    if plan.cluster.master_port:
        notes.append("left out: cluster.master_port: Kubeflow Trainer chooses the port")
    asked = plan.cluster.kubernetes
    trainer = {
        "image": asked.image or IMAGE,
        "numNodes": len(spec.hosts),
        "numProcPerNode": slots,
        "command": ["sh", "-c", _command(plan, spec, name, TRAINER)],
        "env": _variables(plan, spec),
        **_resources(plan, spec, slots, "resourcesPerNode"),
    }
    changed = {"containers": [{"name": NODE, "volumeMounts": _mounts(plan)}], **_pod_fields(plan, name)}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(plan, name),
        "spec": {"runtimeRef": {"name": asked.runtime}, "trainer": trainer, **CHANGES[asked.trainer](changed)},
    }
    release = f"v{asked.trainer}{' or newer' if asked.trainer == '2.2' else ''}"
    needs = f"Kubeflow Trainer {release} with its runtime {sanitise(asked.runtime)} (--only k8s-v1: a PyTorchJob)"
    return _manifest(plan, spec, (_configmap(plan, spec, name, configs), job), notes, needs)


def _template(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod as part of a runtime's template, which v2.2 and later use for changes."""
    return {"spec": {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": {"spec": pod}}}}]}}


CHANGES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "2.0": lambda pod: {"podSpecOverrides": [{"targetJobs": [{"name": NODE}], **pod}]},
    "2.1": lambda pod: {"podTemplateOverrides": [{"targetJobs": [{"name": NODE}], "spec": pod}]},
    "2.2": lambda pod: {"runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": {"template": _template(pod)}}]},
}
"""Release of Kubeflow Trainer -> the function that writes changes of the pods as that release expects them."""


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
        "metadata": _metadata(plan, name),
        "spec": {"runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": plan.run.restarts.max}, "pytorchReplicaSpecs": replicas},
    }
    return _manifest(plan, spec, (_configmap(plan, spec, name, configs), job), notes, "Kubeflow's training operator (PyTorchJob)")


def _manifest(plan: Plan, spec: LaunchSpec, objects: Sequence[Mapping[str, Any]], notes: Sequence[str], needs: str) -> ClusterScript:
    """Return the objects as one file. `needs`: what the cluster must provide."""
    body = yaml.dump_all(map(without_spelling, objects), Dumper=_Dumper, sort_keys=False, width=140)
    head = HEAD.replace("CONTROLLER", needs).replace("WORKDIR", sanitise(spec.workdir))
    return ClusterScript(f"{header_comment(plan, notes)}\n{head}{body}", tuple(notes))


def _metadata(plan: Plan, name: str) -> dict[str, str]:
    namespace = plan.cluster.kubernetes.namespace
    return {"name": name, **({"namespace": namespace} if namespace else {})}


def _first_status(spec: LaunchSpec, name: str) -> str:
    """Return the first status.json of the job folder. The records of the ranks in the folder then report their state."""
    pods = {host: f"pod {number}" for number, host in enumerate(spec.hosts)}
    ranks = {str(rank): {"host": pods[host], "state": "waiting"} for rank, host in spec.ranks.items()}
    hosts = {pod: {"state": "reached"} for pod in pods.values()}
    head = {"version": 1, "state": "running", "tag": _tag(name), "attempt": 1, "started": BEGAN}
    return json.dumps({**head, "ranks": ranks, "hosts": hosts}) + "\n"


def _tag(name: str) -> str:
    return f"k8s-{name}"


def _configmap(plan: Plan, spec: LaunchSpec, name: str, configs: Mapping[str, str]) -> dict[str, Any]:
    data = dict(configs)
    if plan.cluster.kubernetes.job_folder:
        data |= {"plan.yaml": without_layers(plan).text, "status.json": _first_status(spec, name), RANK_SCRIPT: STARTS_RANK}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(plan, f"{name}-config"), "data": data}


def _mounts(plan: Plan) -> list[dict[str, Any]]:
    claims = [{"name": f"volume-{number}", "mountPath": path} for number, path in enumerate(plan.cluster.kubernetes.volumes)]
    return [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "config", "mountPath": CONFIG, "readOnly": True}, *claims]


def _pod_fields(plan: Plan, name: str) -> dict[str, Any]:
    """Return the fields of a pod besides its container."""
    asked = plan.cluster.kubernetes
    claims = [
        {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(asked.volumes.values())
    ]
    shm = {"medium": "Memory", **({"sizeLimit": asked.shm} if asked.shm else {})}
    volumes = [{"name": "shm", "emptyDir": shm}, {"name": "config", "configMap": {"name": f"{name}-config"}}, *claims]
    return {
        **({"nodeSelector": dict(asked.node_selector)} if asked.node_selector else {}),
        **({"tolerations": [_toleration(text) for text in asked.tolerations]} if asked.tolerations else {}),
        "volumes": volumes,
    }


def _toleration(text: str) -> dict[str, str]:
    """Return a taint (`key=value:Effect`, `key:Effect` or `key`) in the form of Kubernetes."""
    name, _, effect = text.partition(":")
    key, equals, value = name.partition("=")
    operator = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **operator, **({"effect": effect} if effect else {})}


def _resources(plan: Plan, spec: LaunchSpec, slots: int, key: str) -> dict[str, Any]:
    """Return the resource limits of a pod under the key of its controller; empty if there are none."""
    limits: dict[str, Any] = {**plan.cluster.kubernetes.resources, **({} if spec.cpu else {"nvidia.com/gpu": slots})}
    return {key: {"limits": limits}} if limits else {}


def _variables(plan: Plan, spec: LaunchSpec) -> list[dict[str, Any]]:
    plain = [{"name": key, "value": value} for key, value in _environment(plan, spec).items()]
    secrets = [(variable, *place.rpartition("/")) for variable, place in plan.cluster.kubernetes.secrets.items()]
    return [
        *plain,
        *({"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for variable, name, _, key in secrets),
    ]


def _pod(plan: Plan, spec: LaunchSpec, name: str, slots: int) -> dict[str, Any]:
    """Return the pod of every replica."""
    container = {
        "name": "pytorch",  # the operator looks for this name
        "image": plan.cluster.kubernetes.image or IMAGE,
        "command": ["sh", "-c", _command(plan, spec, name, OPERATOR)],
        "env": _variables(plan, spec),
        "ports": [{"name": "pytorchjob-port", "containerPort": plan.cluster.master_port or PORT}],
        **_resources(plan, spec, slots, "resources"),
        "volumeMounts": _mounts(plan),
    }
    return {"spec": {"containers": [container], **_pod_fields(plan, name)}}


def _command(plan: Plan, spec: LaunchSpec, name: str, told: tuple[str, str, str]) -> str:
    """Return the torchrun command. `told`: the variables for the pod's number and the rendezvous address."""
    rank, address, port = map(variable, told)
    python = spec.python if spec.python != sys.executable or plan.job.python else "python"
    base = plan.cluster.kubernetes.job_folder
    inside = replace(
        spec,
        launcher="torchrun",
        slots={f"pod-{number}": chosen for number, chosen in enumerate(spec.slots.values())},
        python=python,
        launcher_options=("--no-python",) if base else (),
        bindings=(),
        master_addr=address,
        master_port=port,
    )
    wrapper = ("sh", f"{CONFIG}/{RANK_SCRIPT}", python, "-u") if base else ()
    words = inside.argv(f"{CONFIG}/ds_config.json", rank, wrapper)
    before = spec.refusals + (_leave_folder(base, name) if base else "")
    return f"{before}cd {quote_word(spec.workdir)} && exec {' '.join(map(quote_word, words))}"


def _leave_folder(base: str, name: str) -> str:
    """Return the shell text that creates the job folder."""
    run = quote_word(f"{base.rstrip('/')}/{name}")
    return (
        f"export DSTUI_RUN={run} DSTUI_TAG={quote_word(_tag(name))} && "
        f'mkdir -p "$DSTUI_RUN/logs" "$DSTUI_RUN/ranks" && cp {CONFIG}/*.json {CONFIG}/plan.yaml "$DSTUI_RUN" && '
        f'sed "s/{BEGAN}/$(date -u +%FT%TZ)/" {CONFIG}/status.json >"$DSTUI_RUN/status.json" && '
    )


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
