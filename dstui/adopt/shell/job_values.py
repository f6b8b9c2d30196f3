"""The values that the service of a described job gives to its command in variables or templates. Nothing is executed.

PyTorchJob of Kubeflow (pkg/controller.v1/pytorch/envvar.go) sets PET_NNODES, and WORLD_SIZE to the pods if it does not start the ranks;
SkyPilot sets SKYPILOT_NUM_NODES and SKYPILOT_NUM_GPUS_PER_NODE. Azure ML and GitHub fill in inputs, of which many have a default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import yaml

from dstui.adopt.shell.job_files import documents, scalars, value_at

SIGN = re.compile(r"(?m)^[ \t]*(?:pytorchReplicaSpecs|num_nodes|accelerators|inputs)[ \t]*:")


def values_of_job(text: str) -> Mapping[str, str]:
    """Return variables with the values that a description says; none that two jobs of the text set differently."""
    found: dict[str, set[str]] = {}
    for root in documents(text) if SIGN.search(text) else ():
        for name, value in (*_of_pytorch_job(root), *_of_skypilot(root), *_of_inputs(root)):
            found.setdefault(name, set()).add(str(value))
    return {name: min(values) for name, values in found.items() if len(values) == 1}


def _of_pytorch_job(root: yaml.Node) -> Iterator[tuple[str, int]]:
    pods = value_at(root, "spec", "pytorchReplicaSpecs")
    if not isinstance(pods, yaml.MappingNode):
        return
    replicas = [scalars(one).get("replicas", "1") for _, one in pods.value]
    if all(number.isdecimal() for number in replicas):
        yield "PET_NNODES", sum(map(int, replicas))
        if value_at(root, "spec", "nprocPerNode") is None:
            yield "WORLD_SIZE", sum(map(int, replicas))


def _of_skypilot(root: yaml.Node) -> Iterator[tuple[str, int]]:
    given = value_at(root, "resources", "accelerators")
    if value_at(root, "run") is None or given is None:
        return
    nodes = scalars(root).get("num_nodes", "1")
    if nodes.isdecimal():
        yield "SKYPILOT_NUM_NODES", int(nodes)
    if isinstance(given, yaml.ScalarNode) and (one := re.fullmatch(r"[A-Za-z][\w.-]*(?::(\d{1,4}))?", given.value)):
        yield "SKYPILOT_NUM_GPUS_PER_NODE", int(one[1] or 1)


def _of_inputs(root: yaml.Node) -> Iterator[tuple[str, str]]:
    for path in (("inputs",), ("on", "workflow_dispatch", "inputs")):
        given = value_at(root, *path)
        for key, value in given.value if isinstance(given, yaml.MappingNode) else ():
            default = value if isinstance(value, yaml.ScalarNode) else value_at(value, "default")
            if isinstance(key, yaml.ScalarNode) and isinstance(default, yaml.ScalarNode) and (key.value.isidentifier() and default.value):
                yield key.value.upper(), default.value
