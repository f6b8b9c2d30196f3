"""The values of "auto" by reader: which keys the Trainer and accelerate fill in, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dstui.plan.accelerate_keys import PLUGIN as PLUGIN_KEYS
from dstui.plan.accelerate_keys import SECTION
from dstui.plan.catalogue import ZERO_SECTION

AUTO = "auto"
TYPES = ("fp16", "bf16")
HIDDEN_SIZE_KEYS = {
    f"{ZERO_SECTION}.reduce_bucket_size": "hidden_size²",
    f"{ZERO_SECTION}.stage3_prefetch_bucket_size": "int(0.9 × hidden_size²)",
    f"{ZERO_SECTION}.stage3_param_persistence_threshold": "10 × hidden_size",
}
"""Keys that depend on the model's hidden_size, else on the largest of its hidden_sizes; without either the launch fails."""

PLUGIN = {
    f"{ZERO_SECTION}.stage": "accelerate's --zero_stage, else 2",
    f"{ZERO_SECTION}.offload_optimizer.device": "accelerate's --offload_optimizer_device, else none",
    f"{ZERO_SECTION}.offload_param.device": "accelerate's --offload_param_device, else none",
    f"{ZERO_SECTION}.offload_optimizer.nvme_path": "the environment, else none",
    f"{ZERO_SECTION}.offload_param.nvme_path": "the environment, else none",
    f"{ZERO_SECTION}.stage3_gather_16bit_weights_on_model_save": "accelerate's --zero3_save_16bit_model, else false",
}
"""Keys that accelerate's plugin fills in, also for the Trainer."""
BY_DEFAULT: Mapping[str, object] = {
    f"{ZERO_SECTION}.stage": 2,
    f"{ZERO_SECTION}.offload_optimizer.device": "none",
    f"{ZERO_SECTION}.offload_param.device": "none",
    f"{ZERO_SECTION}.offload_optimizer.nvme_path": "none",
    f"{ZERO_SECTION}.offload_param.nvme_path": "none",
    f"{ZERO_SECTION}.stage3_gather_16bit_weights_on_model_save": False,
}
"""The replacements of "auto" if the plugin was configured without these values."""

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
SCHEDULER = "scheduler.params"
TRAINER: Mapping[str, str] = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_batch_size": "per_device_train_batch_size × gradient_accumulation_steps × ranks",
    "gradient_clipping": "max_grad_norm (1.0)",
    "optimizer.params.lr": "learning_rate (5e-5)",
    "optimizer.params.betas": "[adam_beta1, adam_beta2]",
    "optimizer.params.eps": "adam_epsilon (1e-8)",
    "optimizer.params.weight_decay": "weight_decay",
    f"{SCHEDULER}.warmup_min_lr": "0",
    f"{SCHEDULER}.warmup_max_lr": "learning_rate",
    f"{SCHEDULER}.warmup_num_steps": "warmup_steps, at least 1",
    f"{SCHEDULER}.total_num_steps": "max_steps, else the steps of all epochs",
    "fp16.enabled": "--fp16",
    "bf16.enabled": "--bf16",
    **HIDDEN_SIZE_KEYS,
    **PLUGIN,
}
ACCELERATE: Mapping[str, str] = {
    "train_micro_batch_size_per_gpu": "the smallest batch_size of the data loaders given to prepare()",
    "train_batch_size": "micro-batch × accumulation × ranks",
    "gradient_accumulation_steps": "accelerate's --gradient_accumulation_steps, else Accelerator(gradient_accumulation_steps=…)",
    "gradient_clipping": "accelerate's --gradient_clipping, else 1.0",
    "optimizer.params.lr": "DummyOptim(lr=1e-3)",
    "optimizer.params.weight_decay": "DummyOptim(weight_decay=0)",
    f"{SCHEDULER}.warmup_min_lr": "0",
    f"{SCHEDULER}.warmup_max_lr": "the optimizer's lr",
    f"{SCHEDULER}.warmup_num_steps": "DummyScheduler(warmup_num_steps), at least 1",
    f"{SCHEDULER}.total_num_steps": "DummyScheduler(total_num_steps) / ranks",
    "fp16.enabled": "accelerate's --mixed_precision fp16",
    "bf16.enabled": "accelerate's --mixed_precision bf16",
    **HIDDEN_SIZE_KEYS,
    **PLUGIN,
}
FILLED: Mapping[str, Mapping[str, str]] = {"trainer": TRAINER, "accelerate": ACCELERATE, "deepspeed": {}}
"""Reader -> path -> the source of the value, in words."""


MICRO, STEPS, TRAIN = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
BATCH_OPTIONS: Mapping[str, tuple[str, ...]] = {
    MICRO: ("per_device_train_batch_size", "micro_batch_size"),  # the second is axolotl's
    STEPS: ("gradient_accumulation_steps",),
}
"""Key -> options of a script that set it."""


def fill_auto(
    config: Mapping[str, Any], reader: str, accelerate: Mapping[str, Any] | None, options: Mapping[str, str] = NO_OPTIONS
) -> Mapping[str, Any]:
    """Return the configuration with each "auto" replaced as its reader would, as far as that is known before the script runs.

    `accelerate` is the Plan's section: the plugin's own keys and `mixed_precision`, which precede the defaults. `options`: the Trainer's
    options in the script's arguments, which precede both.
    """
    if reader == "deepspeed":
        return config
    config = _with_options(config, options)
    if reader == "trainer" or not accelerate:
        return _filled(config, BY_DEFAULT)
    precision = accelerate.get("mixed_precision")
    if config and precision in TYPES and precision not in config:
        config = {**config, str(precision): {"enabled": AUTO}}  # accelerate adds the section
    return _filled(config, {**BY_DEFAULT, **_plugin_values(accelerate)})


def _with_options(config: Mapping[str, Any], options: Mapping[str, str]) -> Mapping[str, Any]:
    """Fill in "auto", and missing batch keys, from the Trainer's options for batch size and precision."""
    if not config:
        return config
    found = dict(config)
    of_whole = config.get(TRAIN, AUTO)
    for key, names in BATCH_OPTIONS.items():
        given = next((options[name] for name in names if name in options), "")
        if config.get(key, of_whole) == AUTO and given.isdecimal() and int(given[:9]) > 0:
            found[key] = int(given[:9])
    if found.get(TRAIN) == AUTO and isinstance(found.get(MICRO), int):
        del found[TRAIN]  # follows from the other two and the ranks
    on = {kind: options.get(kind, "").lower() in ("true", "1", "yes", "auto") for kind in TYPES}
    if any(on.values()):
        auto = [kind for kind in TYPES if isinstance(found.get(kind), Mapping) and found[kind].get("enabled") == AUTO]
        found |= {kind: {**found[kind], "enabled": on[kind]} for kind in auto}
    return found


def _plugin_values(accelerate: Mapping[str, Any]) -> dict[str, Any]:
    """Return path -> value for a Plan's accelerate section, without invalid values."""
    inner = accelerate.get(SECTION)
    section = inner if isinstance(inner, Mapping) else {}
    keys = [key for key in PLUGIN_KEYS.values() if key.path and key.name in section]
    known = {key.path: section[key.name] for key in keys if not key.choices or section[key.name] in key.choices}
    precision = accelerate.get("mixed_precision")
    return known | ({f"{kind}.enabled": kind == precision for kind in TYPES} if precision in TYPES else {})


def _filled(config: Mapping[str, Any], values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping):
            found[name] = _filled(value, values, f"{path}.")
        else:
            found[name] = values.get(path, value) if value == AUTO else value
    return found


HIDDEN = ("hidden_size", "n_embd", "d_model", "emb_dim", "dim")
"""The names of the hidden size in config.json: by transformers' attribute_map, GPT-2's, T5's, XLM's and DistilBERT's are the same."""


def hidden_size_of(config: Mapping[str, object], reader: str = "trainer") -> int | None:
    """Return the hidden size that a reader takes from a model's config.json; None if the launch would fail.

    The Trainer also looks into the text part of a multimodal model, accelerate does not.
    """
    text = config.get("text_config") if reader == "trainer" else None
    for part in (config, text if isinstance(text, Mapping) else {}):
        size, sizes = next((part[name] for name in HIDDEN if name in part), None), part.get("hidden_sizes")
        if isinstance(size, int):
            return size
        if isinstance(sizes, list) and sizes and all(isinstance(one, int) for one in sizes):
            return int(max(sizes))
    return None


def value_of(path: str, hidden_size: int, stage: int) -> int | None:
    """Return the value of "auto" for a key that depends on the model; None for others, and for stage-3 keys below stage 3."""
    name = path.removeprefix(f"{ZERO_SECTION}.")
    if name.startswith("stage3_") and stage != 3:
        return None
    values = {
        "reduce_bucket_size": hidden_size * hidden_size,
        "stage3_prefetch_bucket_size": int(0.9 * hidden_size * hidden_size),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
    return values.get(name)
