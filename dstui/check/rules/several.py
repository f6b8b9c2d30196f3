"""Several models in one run: what each configuration under `models:` needs beside the others.

Sources: accelerate/accelerator.py (_prepare_deepspeed) of 1.15; runtime/engine.py of 0.19.8 (_configure_zero_optimizer).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstui.check.context import AUTO, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan.finding import Fix

MICRO = "train_micro_batch_size_per_gpu"
ROLES = ("train", "inference")


def _models(c: Context) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, role and configuration of each model that has one."""
    for name, one in (c.plan.models if c.plan is not None else {}).items():
        config = one.get("deepspeed") if isinstance(one, Mapping) else None
        if isinstance(one, Mapping) and isinstance(config, Mapping):
            yield name, str(one.get("role", "train")), config


@rule(
    "PL030",
    "error",
    when="initialize",
    says="prepare()` requires you to pass at least one",
    source="accelerate/accelerator.py",
    readers=("accelerate",),
)
def no_micro_batch(c: Context) -> Problems:
    """A model that is prepared without a loader has no micro-batch."""
    for number, (name, role, config) in enumerate(_models(c)):
        if config.get(MICRO) not in (None, AUTO) or (number == 0 and role == "train"):
            continue
        path = f"models.{name}.deepspeed.{MICRO}"
        if role == "inference":
            message = f"{name} is not trained, and needs {MICRO} all the same"
        elif config.get(MICRO) == AUTO:
            message = f'{name} is prepared after the first model, whose loader fills "auto": {MICRO} of {name} must be a number'
        else:
            continue
        why = "accelerate takes the micro-batch from a loader in the same prepare(), and here there is none"
        operation = {"op": "replace" if MICRO in config else "add", "path": f"/models/{name}/deepspeed/{MICRO}", "value": 1}
        yield about_the_plan(path, message, why, Fix("write 1", (operation,)))


@rule("PL031", "error", when="initialize", says="requires an optimizer", source="runtime/engine.py")
def inference_below_stage_3(c: Context) -> Problems:
    """A model for inference that is not at stage 3, or has an optimizer."""
    for name, role, config in _models(c):
        zero = config.get("zero_optimization")
        stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
        if role != "inference":
            continue
        if stage in (1, 2):
            operation = {"op": "replace", "path": f"/models/{name}/deepspeed/zero_optimization/stage", "value": 3}
            path = f"models.{name}.deepspeed.zero_optimization.stage"
            why = f"DeepSpeed: zero stage {stage} requires an optimizer"
            yield about_the_plan(
                path, f"{name} is not trained: only stage 3 shards a model without an optimizer", why, Fix("use 3", (operation,))
            )
        if "optimizer" in config:
            operation = {"op": "remove", "path": f"/models/{name}/deepspeed/optimizer"}
            path = f"models.{name}.deepspeed.optimizer"
            why = "accelerate would want a DummyOptim for it, and its states would take memory"
            yield about_the_plan(path, f"{name} is not trained, and needs no optimizer", why, Fix("remove optimizer", (operation,)))


@rule("PL032", "error", when="parse", source="dstui/plan (models)")
def unknown_role(c: Context) -> Problems:
    """The role of a model is none that there is."""
    for name, role, _ in _models(c):
        if role not in ROLES:
            operation = {"op": "replace", "path": f"/models/{name}/role", "value": "train"}
            yield about_the_plan(
                f"models.{name}.role", f"the role of {name} is {role!r}: train or inference", fix=Fix("write train", (operation,))
            )
