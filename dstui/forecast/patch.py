"""Turn a Plan into the Plan of another setup by a JSON Patch (RFC 6902) that writes only the differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.forecast.setup import Setup
from dstui.plan import Plan
from dstui.plan.finding import Operation

Patch = tuple[Operation, ...]
KEYS = {
    "reduce_bucket": "reduce_bucket_size",
    "sub_group": "sub_group_size",
    "reuse_distance": "stage3_max_reuse_distance",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
}
"""Fields of a Setup -> the keys from which they are read."""
PLUS_PLUS = {
    "secondary": "zero_hpz_partition_size",
    "quantized_weights": "zero_quantized_weights",
    "quantized_gradients": "zero_quantized_gradients",
}


def patch_of(plan: Plan, setup: Setup, was: Setup) -> Patch:
    """Return the patch that changes a Plan, read as `was`, to a setup."""
    old = {"deepspeed": plan.data.get("deepspeed") or {}, **({"model": plan.data["model"]} if plan.data.get("model") else {})}
    new = {section: dict(given) for section, given in old.items()}  # nested values are replaced, never changed in place
    _zero(new["deepspeed"], setup, was)
    _optimizer(new["deepspeed"], setup)
    if (setup.micro_batch, setup.accumulation) != (was.micro_batch, was.accumulation):
        new["deepspeed"]["train_micro_batch_size_per_gpu"] = setup.micro_batch
        new["deepspeed"]["gradient_accumulation_steps"] = setup.accumulation
    if setup.sequence_parallel != was.sequence_parallel:
        new["deepspeed"]["sequence_parallel_size"] = setup.sequence_parallel
    if setup.checkpointing != was.checkpointing:
        new.setdefault("model", {})["activation_checkpointing"] = setup.checkpointing
    if setup.checkpointing and setup.recompute != was.recompute:
        new.setdefault("model", {})["recompute"] = setup.recompute
    return tuple(difference(old, new, ""))


def _zero(config: dict[str, Any], setup: Setup, was: Setup) -> None:
    given = config.get("zero_optimization")  # an old switch of ZeRO, or a mistyped value
    zero = config["zero_optimization"] = dict(given) if isinstance(given, Mapping) else {}
    if setup.stage != was.stage or "stage" not in zero:
        zero["stage"] = setup.stage
    for what, place, before in (
        ("optimizer", setup.optimizer_offload, was.optimizer_offload),
        ("param", setup.param_offload, was.param_offload),
    ):
        section = f"offload_{what}"
        if place == before:
            continue
        if place == "none":
            zero.pop(section, None)
            continue
        section_given = zero.get(section)
        there = dict(section_given) if isinstance(section_given, Mapping) else {}
        there |= {"device": place, "pin_memory": there.get("pin_memory", True)}
        if place == "nvme":
            there.setdefault("nvme_path", "/local_nvme")
        zero[section] = there
    for field, key in KEYS.items():
        if getattr(setup, field) != getattr(was, field) and (setup.stage == 3 or field == "reduce_bucket") and setup.stage:
            zero[key] = getattr(setup, field)
    if setup.overlap != was.overlap and setup.stage in (1, 2):
        zero["overlap_comm"] = setup.overlap
    elif setup.stage == 3 and zero.get("overlap_comm") is False and setup.overlap:
        zero["overlap_comm"] = True
    zero |= {key: getattr(setup, field) for field, key in PLUS_PLUS.items() if getattr(setup, field) != getattr(was, field)}
    if setup.super_offload != was.super_offload and isinstance(zero.get("offload_optimizer"), Mapping):
        zero["offload_optimizer"] = {**zero["offload_optimizer"], "super_offload": setup.super_offload}
    for key in ("cpu_offload", "cpu_offload_param"):  # the old spelling would contradict
        zero.pop(key, None)


def _optimizer(config: dict[str, Any], setup: Setup) -> None:
    """Set an optimizer in RAM to DeepSpeed's own. Allow one that the configuration does not build."""
    if setup.optimizer_offload == "none":
        return
    optimizer = config.get("optimizer")
    if not isinstance(optimizer, Mapping):
        config["zero_force_ds_cpu_optimizer"] = False
    elif isinstance(optimizer.get("params"), Mapping) and "torch_adam" in optimizer["params"]:
        params = {key: value for key, value in optimizer["params"].items() if key != "torch_adam"}
        config["optimizer"] = {**optimizer, "params": params}


def difference(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[Operation]:
    """Return the operations that turn one mapping into another."""
    found: list[Operation] = [{"op": "remove", "path": path + pointer_of(key)} for key in old if key not in new]
    for key, value in new.items():
        at = path + pointer_of(key)
        if key in old and old[key] is value:
            continue
        if key not in old:
            found.append({"op": "add", "path": at, "value": value})
        elif isinstance(old[key], Mapping) and isinstance(value, Mapping):
            found += difference(old[key], value, at)
        elif old[key] != value:
            found.append({"op": "replace", "path": at, "value": value})
    return found


def pointer_of(key: str) -> str:
    """Format one key as part of a JSON Pointer."""
    return "/" + key.replace("~", "~0").replace("/", "~1")
