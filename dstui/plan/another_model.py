"""Add a model to a Plan: the configuration in `deepspeed:` becomes that of a named model, and another is added beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dstui.plan.document import scalar_entries
from dstui.plan.load import MODEL_NAME
from dstui.plan.plan import Plan, load
from dstui.plan.splice import Splice

ONE, MICRO, STEPS = "{ds_config}", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def name_problem(name: str, taken: Mapping[str, object]) -> str:
    """Return why a model cannot have this name; "" if it can."""
    if not MODEL_NAME.fullmatch(name):
        return "A model's name begins with a letter, and has letters, digits and _ only."
    return f"{name} exists: give it another name." if name.upper() in map(str.upper, taken) else ""


def add_model(plan: Plan, name: str, role: str, present: str) -> Plan:
    """Return the Plan with one more model of a `role` (train or inference) and a first configuration for it. Raises PlanError.

    Without `models:`, the present configuration first moves to a model called `present`, as it is written.
    """
    plan = plan.unfocused
    if not plan.models:
        plan = _named(plan, present)
    first = next(iter(plan.models.values())).deepspeed
    other: dict[str, Any] = {"role": role} if role == "inference" else {}
    return plan.set(f"models.{name}", {**other, "deepspeed": _beside(first, role)})


def _named(plan: Plan, name: str) -> Plan:
    """Move the Plan's own configuration to the model `name`, and refer to it by that name in the arguments."""
    if "models" in plan.data:
        plan = plan.unset("models")
    if not plan.deepspeed:
        return plan.set(f"models.{name}", {"deepspeed": _beside({}, "train")})
    plan = _moved(plan, name)
    args = [word.replace(ONE, f"{{ds_config:{name}}}") for word in plan.job.args]
    return plan.set("job.args", args) if args != list(plan.job.args) else plan


def _moved(plan: Plan, name: str) -> Plan:
    """Move `deepspeed:` under `models:` with comments and layout. In a Plan in flow style, move only the values."""
    root = plan.document.node(())
    assert isinstance(root, yaml.MappingNode)
    if root.flow_style:
        return plan.patch(({"op": "move", "from": "/deepspeed", "path": f"/models/{name}/deepspeed"},))
    splice = Splice(plan.document)
    key, value = next(pair for pair in scalar_entries(root) if pair[0].value == "deepspeed")
    start, end = splice.line_start(key.start_mark.index), splice.after_line(splice.end(value))
    lines = plan.text[start:end].splitlines(keepends=True)
    body = "".join(f"    {line}" if line.strip() else line for line in lines)
    new = splice.cut(start, end, f"models:{splice.newline}  {name}:{splice.newline}{body}")
    return load(new, plan.source, plan.base, plan.beneath)


def _beside(config: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return a first configuration: the precision of the present model, and a number as micro-batch, since nothing fills an "auto"."""
    trained = role == "train"
    zero = config.get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, Mapping) else None
    kept = ("fp16", "bf16", *(("optimizer", "gradient_clipping") if trained else ()))
    numbers = {path: value if trained and isinstance(value := config.get(path), int) else 1 for path in (MICRO, STEPS)}
    shared = {path: config[path] for path in kept if path in config}
    return {**numbers, **shared, "zero_optimization": {"stage": 3 if not trained else stage if isinstance(stage, int) else 2}}
