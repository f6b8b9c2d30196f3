"""The configuration that a script builds of its own arguments, as far as they tell: DeepSpeed-Chat, OpenRLHF and scripts like them.

Sources: get_train_ds_config in DeepSpeedExamples/applications/DeepSpeed-Chat/dschat/utils/ds_utils.py, and in
OpenRLHF/openrlhf/utils/deepspeed/deepspeed_utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STAGE = ("zero_stage", "deepspeed_stage", "actor_zero_stage")
MICRO = ("micro_train_batch_size", "per_device_train_batch_size", "micro_batch_size", "per_device_mini_train_batch_size", "micro_batch")
WHOLE = ("train_batch_size", "global_batch_size", "train.batch_size")
STEPS = ("gradient_accumulation_steps",)
ON_CPU = ("offload", "adam_offload", "cpu_offload", "offload_optimizer")
WEIGHTS_ON_CPU = ("offload",)
"""DeepSpeed-Chat's --offload moves the weights of stage 3 as well."""
PRECISION = ("dtype", "data_type", "param_dtype", "precision")
HALF: Mapping[str, str] = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}


def built_configuration(options: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the configuration that arguments describe, and a sentence on it; the first is empty where no ZeRO stage is known."""
    options = {**{name.rpartition(".")[2]: value for name, value in options.items()}, **options}  # --ds.zero_stage
    stage = next((options[name] for name in STAGE if options.get(name, "") in ("0", "1", "2", "3")), None)
    if stage is None:
        name = next((name for name in STAGE if name in options), "")
        return {}, f"--{name} {options[name]} sets no ZeRO stage yet: write its number" if name else ""
    zero: dict[str, Any] = {"stage": int(stage)}
    if _is_on(options, ON_CPU):
        zero["offload_optimizer"] = {"device": "cpu"}
    if _is_on(options, WEIGHTS_ON_CPU) and stage == "3":
        zero["offload_param"] = {"device": "cpu"}
    found: dict[str, Any] = {"zero_optimization": zero}
    keys = {"train_micro_batch_size_per_gpu": MICRO, "train_batch_size": WHOLE, "gradient_accumulation_steps": STEPS}
    found |= {key: number for key, names in keys.items() if (number := _number(options, names))}
    precision = next((kind for kind in ("bf16", "fp16") if _is_on(options, (kind,))), None)
    precision = precision or next((HALF[options[name]] for name in PRECISION if options.get(name) in HALF), None)
    assumed = "" if precision else "; bf16 is assumed"
    found[precision or "bf16"] = {"enabled": True}
    return found, f"the script builds its configuration itself: ZeRO-{stage} and the batch are read from its arguments{assumed}"


def _is_on(options: Mapping[str, str], names: tuple[str, ...]) -> bool:
    return any(options.get(name, "").lower() in ("true", "1", "cpu") for name in names)


def _number(options: Mapping[str, str], names: tuple[str, ...]) -> int:
    """Return the first of these options that is a positive whole number; else 0."""
    return next((int(value) for name in names if (value := options.get(name, "")).isdecimal() and 0 < int(value[:9]) < 10**8), 0)
