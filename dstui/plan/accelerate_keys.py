"""accelerate's keys as data: the type of each, the DeepSpeed key with the same meaning, and the variable that hands it to the ranks.

Sequence parallelism (Ulysses) is `parallelism_config`, as accelerate and the Trainer ship it: `accelerate launch` hands it to the ranks as
variables, and a Plan may also write these itself under `cluster.env`. Sources: accelerate/utils/launch.py
(prepare_extend_env_parallelism_config) and parallelism_config.py of 1.15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.plan.catalogue import ZERO_SECTION
from dstui.plan.plan import Plan

SECTION = "deepspeed_config"
"""The section of an accelerate YAML that holds the plugin's keys."""
FILE = "deepspeed_config_file"
"""The plugin's key that names a ds_config.json. With it accelerate is in config-file mode, without it in plugin mode."""
DEFAULT_CONFIG = "default_config.yaml"
"""The file in its cache that `accelerate launch` reads silently if no --config_file is given."""
PRECISIONS = ("no", "fp16", "bf16", "fp8")
DEVICES = ("none", "cpu", "nvme")
LAUNCHERS = ("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm")
TYPES = (
    *("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON"),
    *("DEEPSPEED", "FSDP", "TP", "XLA", "MEGATRON_LM"),
)


@dataclass(frozen=True, slots=True)
class AccelerateKey:
    """One key of an accelerate YAML, at the top level or in `deepspeed_config`."""

    name: str
    kind: str
    """`str`, `int`, `number`, `bool`, `list`, `section`, or `choice`."""
    help: str
    choices: tuple[Any, ...] = ()
    path: str = ""
    """The DeepSpeed key with the same meaning, dotted; empty if there is none."""
    variable: str = ""
    """The environment variable that tells the ranks. accelerate launch itself forgets the two for NVMe."""
    beside_file: bool = True
    """True if accelerate accepts it beside `deepspeed_config_file`. It raises a ValueError for nine keys."""


def _table(*keys: AccelerateKey) -> dict[str, AccelerateKey]:
    return {key.name: key for key in keys}


_PLUGIN = "ACCELERATE_DEEPSPEED_"


def _plugin_key(  # noqa: PLR0913, PLR0917 - a line of the table below
    name: str, kind: str, path: str, variable: str, help: str, choices: tuple[Any, ...] = ()
) -> AccelerateKey:
    """Build a key of the plugin that DeepSpeed has under another name, so that a ds_config.json can set it too."""
    return AccelerateKey(name, kind, help, choices, path, variable, beside_file=False)


_GAS = "gradient_accumulation_steps"
_GATHER = f"{ZERO_SECTION}.stage3_gather_16bit_weights_on_model_save"

GUIDE = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
"""accelerate's own page about these keys."""
PLUGIN = _table(
    AccelerateKey(FILE, "str", "A ds_config.json, instead of the plugin's own keys.", variable=f"{_PLUGIN}CONFIG_FILE"),
    _plugin_key(
        "zero_stage",
        "int",
        f"{ZERO_SECTION}.stage",
        f"{_PLUGIN}ZERO_STAGE",
        "What ZeRO shards: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too.",
        (0, 1, 2, 3),
    ),
    _plugin_key(
        "offload_optimizer_device",
        "choice",
        f"{ZERO_SECTION}.offload_optimizer.device",
        f"{_PLUGIN}OFFLOAD_OPTIMIZER_DEVICE",
        "Where the optimizer states are kept.",
        DEVICES,
    ),
    _plugin_key(
        "offload_param_device",
        "choice",
        f"{ZERO_SECTION}.offload_param.device",
        f"{_PLUGIN}OFFLOAD_PARAM_DEVICE",
        "Where the parameters are kept between their uses (stage 3 only).",
        DEVICES,
    ),
    _plugin_key(
        "offload_optimizer_nvme_path",
        "str",
        f"{ZERO_SECTION}.offload_optimizer.nvme_path",
        f"{_PLUGIN}OFFLOAD_OPTIMIZER_NVME_PATH",
        "The folder on NVMe for the optimizer states. accelerate launch does not pass it on: set it in a ds_config.json.",
    ),
    _plugin_key(
        "offload_param_nvme_path",
        "str",
        f"{ZERO_SECTION}.offload_param.nvme_path",
        f"{_PLUGIN}OFFLOAD_PARAM_NVME_PATH",
        "The folder on NVMe for the parameters. accelerate launch does not pass it on: set it in a ds_config.json.",
    ),
    _plugin_key(
        _GAS,
        "int",
        _GAS,
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        "Micro-batches per optimizer step; it overrides Accelerator(gradient_accumulation_steps=…).",
    ),
    _plugin_key(
        "gradient_clipping",
        "number",
        "gradient_clipping",
        "ACCELERATE_GRADIENT_CLIPPING",
        "The largest norm of the gradients; a 0 is left out, and DeepSpeed clips at 1.0.",
    ),
    _plugin_key(
        "zero3_save_16bit_model",
        "bool",
        _GATHER,
        f"{_PLUGIN}ZERO3_SAVE_16BIT_MODEL",
        "Gather whole 16-bit weights when the model is saved at stage 3.",
    ),
    AccelerateKey(
        "zero3_init_flag",
        "bool",
        "Split the model while it is built, at stage 3; false does not prevent transformers from doing so.",
        variable=f"{_PLUGIN}ZERO3_INIT",
    ),
    AccelerateKey(
        "deepspeed_moe_layer_cls_names",
        "str",
        "Classes of MoE layers that are gathered whole at stage 3, with commas and no blanks.",
        variable=f"{_PLUGIN}MOE_LAYER_CLS_NAMES",
    ),
    AccelerateKey("deepspeed_hostfile", "str", "The hostfile: one `HOST slots=N` per line."),
    AccelerateKey("deepspeed_exclusion_filter", "str", "Hosts and slots to leave out: worker-2:0@worker-3."),
    AccelerateKey("deepspeed_inclusion_filter", "str", "Hosts and slots to use; without effect beside an exclusion filter."),
    AccelerateKey("deepspeed_multinode_launcher", "choice", "Who starts the ranks of several machines.", LAUNCHERS),
)
"""The keys of `deepspeed_config`, in the order of accelerate's guides."""

TOP = _table(
    AccelerateKey("compute_environment", "choice", "Where it runs.", ("LOCAL_MACHINE", "AMAZON_SAGEMAKER")),
    AccelerateKey("distributed_type", "choice", "How it is distributed; only DEEPSPEED uses deepspeed_config.", TYPES),
    AccelerateKey(
        "mixed_precision",
        "choice",
        "The number format of the computation.",
        PRECISIONS,
        variable="ACCELERATE_MIXED_PRECISION",
        beside_file=False,
    ),
    AccelerateKey("num_processes", "int", "Ranks on all machines together."),
    AccelerateKey("num_machines", "int", "Machines."),
    AccelerateKey("machine_rank", "int", "Which machine this is, from 0."),
    AccelerateKey("main_process_ip", "str", "The address of machine 0, where the ranks meet."),
    AccelerateKey("main_process_port", "int", "Its port; 0 takes a free one."),
    AccelerateKey("gpu_ids", "str", "The GPUs to use, with commas, or all.", variable="CUDA_VISIBLE_DEVICES"),
    AccelerateKey("use_cpu", "bool", "Train on the CPU; without effect with DeepSpeed."),
    AccelerateKey("debug", "bool", "Check the shapes of what is gathered.", variable="ACCELERATE_DEBUG_MODE"),
    AccelerateKey("main_training_function", "str", "The function to call in a notebook or on a TPU."),
    AccelerateKey("rdzv_backend", "str", "How torchrun's agents meet; accelerate launch takes it from --rdzv_backend only."),
    AccelerateKey("same_network", "bool", "True if the machines share a network; accelerate launch takes it from --same_network only."),
    AccelerateKey("enable_cpu_affinity", "bool", "Bind ranks to CPUs; accelerate launch takes it from --enable_cpu_affinity only."),
    AccelerateKey("downcast_bf16", "str", "For TPUs."),
    AccelerateKey(SECTION, "section", "The DeepSpeed plugin: its own keys, or the name of a ds_config.json."),
    AccelerateKey("fp8_config", "section", "For mixed_precision: fp8."),
    AccelerateKey("fsdp_config", "section", "For PyTorch's FSDP; without effect with DeepSpeed."),
    AccelerateKey("megatron_lm_config", "section", "For Megatron-LM; without effect with DeepSpeed."),
    AccelerateKey("parallelism_config", "section", "Sequence parallelism: parallelism_config_sp_size, parallelism_config_sp_backend, …"),
    AccelerateKey("mpirun_config", "section", "For mpirun on CPUs."),
    AccelerateKey("dynamo_config", "section", "torch.compile; not passed to the ranks of a DeepSpeed launch."),
    *(AccelerateKey(name, "str", "For TPUs.") for name in ("tpu_name", "tpu_zone", "command_file")),
    *(AccelerateKey(name, "bool", "For TPUs.") for name in ("tpu_use_cluster", "tpu_use_sudo")),
    *(AccelerateKey(name, "list", "For TPUs.") for name in ("commands", "tpu_vm", "tpu_env")),
    AccelerateKey("fp16", "bool", "The old name of mixed_precision: fp16."),
    AccelerateKey("dynamo_backend", "str", "The old name of dynamo_config.dynamo_backend."),
)
"""The top-level keys of an accelerate YAML."""

ALONE = tuple(key.name for key in PLUGIN.values() if not key.beside_file)
"""The keys of the plugin that cannot go beside `deepspeed_config_file`. The ninth refused key is mixed_precision."""
QUESTIONNAIRE: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "debug": False,
    "distributed_type": "DEEPSPEED",
    "downcast_bf16": "no",
    "enable_cpu_affinity": False,
    "machine_rank": 0,
    "main_training_function": "main",
    "rdzv_backend": "static",
    "same_network": True,
    "tpu_env": [],
    "tpu_use_cluster": False,
    "tpu_use_sudo": False,
    "use_cpu": False,
}
"""Keys that `accelerate config` writes into every file for one machine besides the answers."""


PARALLELISM = "parallelism_config"
"""The section of an accelerate YAML, and the prefix of each of its keys."""
SIZE = f"{PARALLELISM}_sp_size"
IN_USE = "ACCELERATE_USE_PARALLELISM_CONFIG"
ATTENTION = "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION"
"""accelerate launch sets this variable to sdpa by itself. Without it, Ulysses finds another attention in the model and stops."""


def parallelism_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of the ranks. accelerate ignores keys without the prefix."""
    section = plan.accelerate.get(PARALLELISM)
    keys = section if isinstance(section, Mapping) else {}
    given = {name.upper(): str(value) for name, value in keys.items() if name.startswith(f"{PARALLELISM}_") and value is not None}
    return {IN_USE: "true", ATTENTION: "sdpa", **given} if given else {}


def sp_size(plan: Plan | None) -> int:
    """Return the number of ranks over which accelerate splits each sequence; 1 if it does not split, or nothing reads the setting."""
    if plan is None or plan.job.integration == "deepspeed":
        return 1
    env = {**parallelism_variables(plan), **plan.cluster.env}
    size = env.get(SIZE.upper(), "1")
    in_use = env.get(IN_USE, "").lower() == "true"
    return int(size) if in_use and size.isascii() and size.isdecimal() and 1 <= len(size) <= 6 and int(size) else 1
