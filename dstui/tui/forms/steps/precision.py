"""Step 5: the number format of the forward and backward pass."""

from __future__ import annotations

from typing import Any

from dstui.plan import Plan
from dstui.tui.forms.fields import Field, Option
from dstui.tui.forms.steps.step import AUTO, Step, model_choice, with_auto
from dstui.tui.session.state import UNSET, State

BF16, FP16, ACTIVATIONS = "deepspeed.bf16", "deepspeed.fp16", "deepspeed.activation_checkpointing"


def precision_of(plan: Plan) -> str:
    """Return bf16, fp16 or fp32 from the Plan's two sections; auto if the reader fills them."""
    written = {name: plan.get(f"{path}.enabled", False) for name, path in (("bf16", BF16), ("fp16", FP16))}
    chosen = next((name for name, enabled in written.items() if enabled is True), None)
    filled = AUTO in written.values() and plan.job.integration != "deepspeed"
    return chosen or (AUTO if filled else "fp32")


def _written(state: State) -> str:
    """Return the value that is set now; "auto" even if nothing fills it in."""
    found = precision_of(state.plan)
    return AUTO if found == "fp32" and AUTO in (state.plan.get(f"{BF16}.enabled", None), state.plan.get(f"{FP16}.enabled", None)) else found


def _bf16_disabled(state: State) -> str:
    old = [g for g in state.gpus if isinstance(g.compute_capability, str) and float(g.compute_capability) < 8]
    return f"{old[0].short_name} has no bf16 (compute capability {old[0].compute_capability})" if old else ""


def _only_fp16(state: State) -> str:
    return "" if precision_of(state.plan) in ("fp16", AUTO) else "only with fp16"


def _scale(key: str, label: str, **more: Any) -> Field:
    return Field(path=f"{FP16}.{key}", label=label, kind="number", disabled=_only_fp16, **more)


def _checkpointing(key: str, label: str, **more: Any) -> Field:
    return Field(path=f"{ACTIVATIONS}.{key}", label=label, **{"kind": "toggle", **more})


MODES = (
    Option(
        value="bf16",
        label="bf16",
        says="range of fp32, no loss scaling",
        edits=((f"{BF16}.enabled", True), (f"{FP16}.enabled", UNSET)),
        disabled=_bf16_disabled,
    ),
    Option(value="fp16", label="fp16", says="needs a loss scale", edits=((f"{FP16}.enabled", True), (f"{BF16}.enabled", UNSET))),
    Option(value="fp32", label="fp32", says="twice the memory", edits=((f"{BF16}.enabled", UNSET), (f"{FP16}.enabled", UNSET))),
)

FORMAT = Field(
    path=f"{BF16}.enabled",
    owns=(BF16, FP16, f"{FP16}.enabled"),
    label="Format",
    kind="choice",
    spread=True,
    options=MODES,
    read=_written,
)
BOTH_AUTO = ((f"{BF16}.enabled", AUTO), (f"{FP16}.enabled", AUTO))
"""The form in files for the Trainer and accelerate: --bf16, --fp16 or mixed_precision decides."""
DETAILS = (
    _scale("loss_scale", "Loss scale", title="Loss scaling of fp16"),
    _scale("initial_scale_power", "First scale, 2 to the", unit="th power"),
    _scale("loss_scale_window", "Raise after", unit="steps"),
    _scale("hysteresis", "Hysteresis"),
    _scale("min_loss_scale", "Least scale"),
    _checkpointing("partition_activations", "Shard activations", title="DeepSpeed's activation checkpointing"),
    _checkpointing("cpu_checkpointing", "Checkpoints in host RAM"),
    _checkpointing("contiguous_memory_optimization", "Contiguous memory"),
    _checkpointing("number_checkpoints", "Checkpoints", kind="number"),
)

PRECISION = Step(
    id="precision",
    title="Precision",
    question="In which number format do the forward and backward pass run?",
    owns=(BF16, FP16, ACTIVATIONS, "deepspeed.torch_autocast", "deepspeed.data_types", "deepspeed.communication_data_type"),
    value=lambda state: precision_of(state.plan),
    fields=lambda state: (*model_choice(state), with_auto(FORMAT, state, BOTH_AUTO), *DETAILS),
)
