"""The sections of a Plan as frozen dataclasses: each field with its kind, default and help text.

The forms, the error messages and the documentation read the help text from here; the reasons for the defaults are in `data/reasons.json`.
`dstui/plan/load.py` builds these from a document and checks every value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.base.limits import MAX_RANKS, MAX_SLOTS
from dstui.plan.launchers import LAUNCHERS

MAX_PARAMETERS = 10**14
"""More parameters than any model has: a larger number is a typing error."""
WEEK = 7 * 24 * 3600
INTEGRATIONS = ("deepspeed", "trainer", "accelerate")
ROLES = ("train", "inference")

Integration = Literal["deepspeed", "trainer", "accelerate"]
Builder = Literal["config", "script", "none"]


def opt(  # noqa: PLR0913 - all but the first two are named
    default: Any,
    help: str,
    *,
    kind: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    of: type | None = None,
) -> Any:
    """Declare a field of a Plan section.

    `kind` is a kind of values (`dstui.plan.kinds`):

    - str, int, bool, number, host, module
    - words (a list of strings), words or str
    - option (a word for sbatch), options and lines (lists of texts without line breaks)
    - env (name -> value), slots (host -> number of ranks), patterns (metric -> regular expression)
    - section (its dataclass is `of`), mapping (anything)

    A field whose default is None may also be null. A number that causes work has a `maximum`.
    """
    metadata = {"help": help, "kind": kind, "choices": choices, "minimum": minimum, "maximum": maximum, "of": of}
    if isinstance(default, (dict, list)):
        return field(default_factory=type(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The training script, its arguments, and the reader of the DeepSpeed configuration."""

    script: str | None = opt(None, "The training script, relative to workdir. Give this or module.", kind="str")
    module: str | None = opt(None, "A module to run as `python -m`, instead of script.", kind="module")
    args: tuple[str, ...] = opt((), "Arguments of the script; {ds_config} becomes the path of the rendered ds_config.json.", kind="words")
    command: tuple[str, ...] = opt(
        (),
        "Instead of script and module: a program that starts its own ranks (llamafactory-cli, axolotl, swift), as a list of words.",
        kind="words",
    )
    workdir: str = opt(".", "The folder in which the script runs, relative to the Plan's own folder.", kind="str")
    python: str | None = opt(None, "The interpreter of the ranks; null is the one that dstui runs in.", kind="str")
    integration: Integration = opt(
        "deepspeed",
        "Who reads the configuration: deepspeed.initialize, transformers' Trainer, or accelerate.",
        kind="str",
        choices=INTEGRATIONS,
    )
    optimizer: Builder = opt(
        "config",
        "Who builds the optimizer: the configuration, the script, or none: nothing is trained (ZeRO inference).",
        kind="str",
        choices=("config", "script", "none"),
    )
    scheduler: Builder = opt(
        "config", "Who builds the learning-rate scheduler: the configuration or the script.", kind="str", choices=("config", "script")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Small trained matrices beside frozen weights, with PEFT's names and defaults."""

    r: int = opt(8, "The rank of the trained matrices.", kind="int", minimum=1, maximum=65536)
    alpha: float = opt(8, "Their output is scaled by alpha / r.", kind="number", minimum=0, maximum=1e9)
    dropout: float = opt(0, "Dropout on their input, from 0 to 1.", kind="number", minimum=0, maximum=1)
    target_modules: tuple[str, ...] | str = opt(
        "all-linear", "The linear layers that get them: [q_proj, v_proj], or all-linear.", kind="words or str"
    )
    task_type: str | None = opt(None, "PEFT's task type: CAUSAL_LM, SEQ_2_SEQ_LM, …", kind="str")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model that is trained: for the forecast and for values that are derived from it."""

    source: str | None = opt(None, "A folder with a config.json, a config.json itself or its text ({…}), or a hub id.", kind="str")
    params: float | None = opt(
        None, "The number of parameters, where there is no source: 7.0e9.", kind="number", minimum=1, maximum=MAX_PARAMETERS
    )
    sequence_length: int | None = opt(None, "Tokens per sample.", kind="int", minimum=1, maximum=10**9)
    activation_checkpointing: bool | None = opt(None, "True if the script recomputes activations in the backward pass.", kind="bool")
    lora: Lora | None = opt(None, "LoRA: small trained matrices beside frozen weights; null trains all weights.", kind="section", of=Lora)
    trainable: float | None = opt(
        None,
        "How many parameters are trained, where a part of the model is frozen: 0.91e9.",
        kind="number",
        minimum=0,
        maximum=MAX_PARAMETERS,
    )
    quantization: str | None = opt(
        None, "How frozen base weights are stored (QLoRA); null: as they are.", kind="str", choices=("int8", "nf4")
    )
    attention: str | None = opt(
        None,
        "The attention of the script; null is the library's default. eager holds a matrix of sequence length squared; flash3 "
        "is FlashAttention-3, two to three times as fast on Hopper where sequences are long.",
        kind="str",
        choices=("eager", "sdpa", "flash", "flash3"),
    )
    fused_loss: bool = opt(False, "The logits are never held whole (Liger, cut cross entropy and their like).", kind="bool")
    compiled: bool = opt(False, "The layers run under torch.compile, which fuses their small kernels.", kind="bool")
    tiled_mlp: bool = opt(False, "The MLP runs over parts of the sequence (DeepSpeed's TiledMLP, as in ALST).", kind="bool")
    activation_offload: bool = opt(False, "The inputs of recomputed layers wait in RAM (ALST, activation offload of TRL).", kind="bool")
    recompute: str = opt(
        "full",
        "What activation_checkpointing computes again: whole layers, what is cheap (torchtitan), or the attention's matrix (Megatron).",
        kind="str",
        choices=("full", "selective", "attention"),
    )
    active_params: float | None = opt(
        None,
        "Of a mixture of experts given by params: the parameters that a token goes through.",
        kind="number",
        minimum=1,
        maximum=MAX_PARAMETERS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """One of several models in a run, with a configuration of its own."""

    role: Literal["train", "inference"] = opt(
        "train", "Whether it is trained, or only computes: inference is ZeRO stage 3 without an optimizer.", kind="str", choices=ROLES
    )
    model: Model | None = opt(None, "What it is; what is not given here is as in the Plan's own model.", kind="section", of=Model)
    deepspeed: Mapping[str, Any] = opt({}, "DeepSpeed's configuration of this model alone.", kind="mapping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """Options of sbatch in the rendered SLURM script, besides nodes and GPUs."""

    partition: str | None = opt(None, "The partition (--partition); null is the cluster's default.", kind="option")
    account: str | None = opt(None, "The account that pays (--account).", kind="option")
    qos: str | None = opt(None, "The quality of service (--qos).", kind="option")
    time: str | None = opt(None, "The time limit (--time): 2-12:00:00, 90 (minutes); null is the partition's default.", kind="option")
    constraint: str | None = opt(None, "Features that the nodes must have (--constraint): a100, 'a100|h100'.", kind="option")
    mem: str | None = opt(None, "Memory of each node (--mem): 64G; 0 is all of it.", kind="option")
    cpus_per_task: int | None = opt(
        None,
        "CPUs for all ranks of a node together (--cpus-per-task); SLURM gives one unless told.",
        kind="int",
        minimum=1,
        maximum=65536,
    )
    exclusive: bool = opt(False, "True if no other job may run on the nodes (--exclusive).", kind="bool")
    gres: str | None = opt(None, "Generic resources of each node (--gres): gpu:a100:8; GPUs here replace --gpus-per-node.", kind="option")
    extra: tuple[str, ...] = opt((), "Further options of sbatch, as typed: [--mail-type=END].", kind="options")
    setup: tuple[str, ...] = opt((), "Lines of shell before the ranks are started: [module load cuda/12.4].", kind="lines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """The settings of the rendered Kubernetes manifest, besides nodes and GPUs."""

    trainer: str = opt(
        "2.2",
        "The release of Kubeflow Trainer in the cluster, which decides how a TrainJob changes pods: '2.0', '2.1', or '2.2' and later.",
        kind="str",
        choices=("2.0", "2.1", "2.2"),
    )
    runtime: str = opt("torch-distributed", "The ClusterTrainingRuntime, whose pods run torchrun.", kind="str")
    namespace: str | None = opt(None, "The namespace; null is that of kubectl's context.", kind="str")
    image: str | None = opt(None, "The image: Python, torch, DeepSpeed and the script; null leaves a line to fill in.", kind="str")
    resources: Mapping[str, str] = opt({}, "Limits of each pod beside its GPUs: {cpu: '16', memory: 128Gi}.", kind="labels")
    volumes: Mapping[str, str] = opt({}, "Mount path -> PersistentVolumeClaim: {/data: my-claim}.", kind="labels")
    secrets: Mapping[str, str] = opt({}, "Variable -> key of a Secret, never a value: {HF_TOKEN: hf-secret/token}.", kind="secrets")
    node_selector: Mapping[str, str] = opt({}, "Labels that the nodes must have.", kind="labels")
    tolerations: tuple[str, ...] = opt(
        (), "Taints of nodes that the pods accept, as kubectl writes them: [nvidia.com/gpu=true:NoSchedule].", kind="words"
    )
    shm: str | None = opt(None, "The size of /dev/shm: 64Gi; null is half of the node's memory.", kind="str")
    job_folder: str | None = opt(
        None,
        "A folder on a volume in which the ranks leave a job folder with their logs, for dstui attach, logs and diagnose.",
        kind="str",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The hosts and slots of a job, the launcher and its filters, the environment of the ranks."""

    hosts: Mapping[str, int] | None = opt(
        None, "Host -> slots (ranks). {localhost: 2} is 2 ranks here; null is every GPU of this machine.", kind="slots"
    )
    hostfile: str | None = opt(None, "A hostfile in DeepSpeed's form (`worker-1 slots=8`), instead of hosts.", kind="str")
    cpu_ranks: int = opt(2, "Ranks on a machine without a GPU, where hosts is not given.", kind="int", minimum=1, maximum=MAX_SLOTS)
    num_nodes: int | None = opt(None, "Use only the first N hosts (--num_nodes).", kind="int", minimum=1, maximum=MAX_RANKS)
    num_gpus: int | None = opt(None, "Ranks per host: slots 0 to N-1 on each (--num_gpus).", kind="int", minimum=1, maximum=MAX_SLOTS)
    include: str | None = opt(None, "Hosts and slots to use: worker-1@worker-2:0,2 (--include).", kind="str")
    exclude: str | None = opt(None, "Hosts and slots to leave out, in the same grammar (--exclude).", kind="str")
    launcher: str | None = opt(
        None,
        "How ranks are started; null: local on one machine, srun in a SLURM allocation, else ssh; sbatch queues the job.",
        kind="str",
        choices=LAUNCHERS,
    )
    launcher_args: tuple[str, ...] = opt((), "Further options of the launcher, as typed.", kind="words")
    cpu_binding: str | None = opt(
        None,
        "Bind ranks to cores: deepspeed is --bind_cores_to_rank, numactl is a wrapper of dstui.",
        kind="str",
        choices=("deepspeed", "numactl"),
    )
    master_addr: str | None = opt(None, "Address of rank 0, where the others meet; null asks the first host for its own.", kind="host")
    master_port: int | None = opt(None, "Port of rank 0; null takes a free one at launch.", kind="int", minimum=1, maximum=65535)
    env: Mapping[str, str] = opt({}, "Variables for every rank on every host (.deepspeed_env).", kind="env")
    env_file: str | None = opt(None, "Another name or place for .deepspeed_env (DS_ENV_FILE).", kind="str")
    slurm: Slurm = opt(Slurm(), "What the rendered SLURM script requests.", kind="section", of=Slurm)

    kubernetes: Kubernetes = opt(Kubernetes(), "Settings of the rendered manifest for Kubernetes.", kind="section", of=Kubernetes)

    @property
    def submits(self) -> bool:
        """Return whether a launch queues the job with SLURM."""
        return self.launcher == "sbatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The restarts of a job after a failure."""

    max: int = opt(0, "How often a failed job is started again.", kind="int", minimum=0, maximum=1000)
    backoff: float = opt(10, "Seconds before the next attempt.", kind="number", minimum=0, maximum=WEEK)
    args: tuple[str, ...] = opt((), "Arguments appended from the second attempt on; {checkpoint} is the latest one.", kind="words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Settings of how the run is watched."""

    restarts: Restarts = opt(Restarts(), "What happens after a failure.", kind="section", of=Restarts)
    silence: float = opt(300, "Seconds without a line before a rank is called silent.", kind="number", minimum=1, maximum=WEEK)
    host_lost: float = opt(
        600,
        "Seconds after which the job fails if a host cannot be reached and no rank elsewhere has written a line; 0 waits forever.",
        kind="number",
        minimum=0,
        maximum=WEEK,
    )
    metrics: Mapping[str, str] = opt(
        {},
        "Your own metrics in the log: name -> a regular expression with one group, the number. reward: 'reward[=: ]+([-+0-9.e]+)'. "
        "RE2 matches it: no lookaround, no backreferences; \\d, \\w, \\s and \\b are about ASCII.",
        kind="patterns",
    )
    observe: str = opt(
        "engine",
        "What a hook in each rank reports: engine is each step of DeepSpeed's engine; process is stacks and ends alone; off is no hook.",
        kind="str",
        choices=("engine", "process", "off"),
    )
    on_end: str | None = opt(
        None,
        "A command or an https URL to notify when the job ends: DSTUI_NAME, DSTUI_STATE, DSTUI_EXIT_CODE, … or a JSON object.",
        kind="str",
    )


SECTIONS: dict[str, type] = {"job": Job, "model": Model, "cluster": Cluster, "run": Run}
"""The sections whose fields are dstui's. `models` has a `NamedModel` for each name; `accelerate` and `deepspeed` are kept as they are."""


def field_of(path: str) -> Field[Any] | None:
    """Return the field of the Plan at a dotted path (`cluster.hosts`), or None if there is none."""
    section, *names = path.split(".")
    cls, found = SECTIONS.get(section), None
    if section == "models":
        cls, names = NamedModel, names[1:]
    for name in names:
        found = next((f for f in fields(cls) if f.name == name), None) if cls else None
        cls = found.metadata["of"] if found else None
    return found


def help_of(path: str) -> str:
    """Return the help text of a field of the Plan, or "" if there is none."""
    found = field_of(path)
    return found.metadata["help"] if found else ""


def reason_for_default(path: str) -> str:
    """Return why the default of a field of the Plan is what it is, or "" if no reason is recorded."""
    section, _, rest = path.partition(".")
    return _reasons().get(f"models.NAME.{rest.partition('.')[2]}" if section == "models" else path, "")


@cache
def _reasons() -> dict[str, str]:
    reasons: dict[str, str] = json.loads((Path(__file__).parent / "data" / "reasons.json").read_bytes())
    return reasons
