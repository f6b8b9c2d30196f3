"""Rules about several models in one run: what each configuration under `models:` needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dstui.check.auto_values import AUTO
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan.finding import Fix
from dstui.plan.model import NamedModel

MICRO = "train_micro_batch_size_per_gpu"
NAMED = re.compile(r"\{ds_config(?::(\w+))?\}")


def _models(c: Context) -> Iterator[tuple[str, NamedModel]]:
    """Yield name and model for each with a configuration, in the order of the Plan."""
    for name, one in (c.plan.models if c.plan is not None else {}).items():
        if one.deepspeed:
            yield name, one


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
    for number, (name, one) in enumerate(_models(c)):
        written = one.deepspeed.get(MICRO)
        first = number == 0 and one.role == "train"
        if written not in (None, AUTO) or first or (written is None and one.role == "train"):
            continue
        path = f"models.{name}.deepspeed.{MICRO}"
        if one.role == "inference":
            message = f"{name} is not trained, but still needs {MICRO}"
        else:
            message = f'{name} is prepared after the first model, whose loader fills "auto": {MICRO} of {name} must be a number'
        why = "accelerate takes the micro-batch from a loader in the same prepare(), and here there is none"
        yield about_the_plan(path, message, why, Fix("write 1", (_put(c, name, MICRO, 1),)))


@rule("PL031", "error", when="initialize", says="requires an optimizer", source="runtime/engine.py")
def inference_below_stage_3(c: Context) -> Problems:
    """A model for inference that is not at stage 3, or has an optimizer."""
    for name, config in (c.plan.configurations if c.plan is not None else {}).items():
        if c.plan is None or c.plan.trains(name):
            continue
        root, what = (f"models.{name}.deepspeed", name) if name else ("deepspeed", "the model")
        stage = stage_of(config)
        if stage in (1, 2):
            path = f"{root}.zero_optimization.stage"
            why = f"DeepSpeed: zero stage {stage} requires an optimizer"
            fix = Fix("use 3", ({"op": "replace", "path": "/" + path.replace(".", "/"), "value": 3},))
            yield about_the_plan(path, f"{what} is not trained: only stage 3 shards a model without an optimizer", why, fix)
        for section in ("optimizer", "scheduler"):
            if section in config:
                path = f"{root}.{section}"
                operation = {"op": "remove", "path": "/" + path.replace(".", "/")}
                why = "accelerate would need a dummy of it in prepare(), and optimizer states take memory"
                message = f"{what} is not trained, and needs no {section}"
                yield about_the_plan(path, message, why, Fix(f"remove {section}", (operation,)))


@rule("PL032", "error", when="launch", source="dstui/render/config_files.py (with_paths)")
def no_such_configuration(c: Context) -> Problems:
    """An argument refers to a configuration that this Plan does not have."""
    if c.plan is None:
        return
    known = c.plan.configurations
    names = ", ".join(f"{{ds_config:{name}}}" if name else "{ds_config}" for name in known)
    for word in c.plan.job.args:
        for match in NAMED.finditer(word):
            if (match[1] or "") not in known:
                where = "this Plan has no such model" if match[1] else "there is no deepspeed section beside models"
                yield about_the_plan("job.args", f"{match[0]}: {where} with a configuration", f"available: {names}")


@rule("PL033", "warning", source="dstui/plan (models)")
def configuration_of_no_model(c: Context) -> Problems:
    """A deepspeed section beside models that have their own."""
    if c.plan is not None and any(_models(c)) and "" in c.plan.configurations:
        why = "it is rendered as ds_config.json; the forecast counts the models under models: alone"
        fix = Fix("remove the section deepspeed", ({"op": "remove", "path": "/deepspeed"},))
        yield about_the_plan("deepspeed", "deepspeed: is given beside models: and belongs to none of them", why, fix)


@rule("PL034", "info", source="accelerate/accelerator.py (Accelerator.__init__)", readers=("accelerate",))
def several_through_accelerate(c: Context) -> Problems:
    """Several models through accelerate: what the script must do."""
    names = [name for name, _ in _models(c)]
    trained = [name for name, one in _models(c) if one.role == "train"]
    if len(names) < 2:
        return
    why = (
        "accelerate calls it experimental: all plugins are given to the first Accelerator, each model is prepared while its plugin is "
        "selected, and get_state_dict() and save_state() follow the model that was prepared last: save with engine.save_checkpoint()"
    )
    message = f"several models ({', '.join(names)}): `dstui render PLAN --only code` prints the lines that the script needs"
    if len(trained) > 1:
        message += f"; {len(trained)} are trained, so the script makes {len(trained)} Accelerators"
    yield about_the_plan("models", message, why)


def stage_of(config: Mapping[str, Any]) -> int:
    """Return the ZeRO stage in a configuration; 0 if it has none."""
    zero = config.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
    return stage if isinstance(stage, int) else 0


def _put(c: Context, name: str, key: str, value: Any) -> dict[str, Any]:
    """Write a key of a model's configuration."""
    path = f"models.{name}.deepspeed.{key.replace('/', '.')}"
    there = c.plan is not None and c.plan.get(path) is not None
    return {"op": "replace" if there else "add", "path": f"/models/{name}/deepspeed/{key}", "value": value}
