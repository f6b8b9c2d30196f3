"""Step 3: what ZeRO shards over the ranks."""

from __future__ import annotations

from typing import Any

from dstui.tui.forms.fields import Field, Option
from dstui.tui.forms.steps.figures import other_ways, own_offload, with_figures
from dstui.tui.forms.steps.step import AUTO, Step, model_choice, with_auto
from dstui.tui.session.state import UNSET, State

ZERO_PATH = "deepspeed.zero_optimization"


def stage_of(state: State) -> int | None:
    """Return the ZeRO stage as DeepSpeed reads it, 0 if none is valid; None for an "auto" that the reader fills in."""
    zero = state.plan.get(ZERO_PATH, None)
    if isinstance(zero, bool):
        return int(zero)  # an old form: true is stage 1
    stage = state.plan.get(f"{ZERO_PATH}.stage", 0)
    if stage == AUTO and state.plan.job.integration != "deepspeed":
        return None
    return stage if isinstance(stage, int) else 0


def stage_text(state: State) -> str:
    """Return the stage as text."""
    stage = stage_of(state)
    return AUTO if stage is None else str(stage)


def stage_may_be(state: State, *stages: int) -> bool:
    """Return whether the stage is one of these, or an "auto" that may become one."""
    return stage_of(state) in (None, *stages)


def stage_at_least(state: State, least: int) -> bool:
    """Return whether the stage is this one or higher, or an "auto" that may become so."""
    return stage_may_be(state, *range(least, 4))


def _needs(least: int) -> Any:
    return lambda state: "" if stage_at_least(state, least) else f"needs stage {least}" + (" or more" if least < 3 else "")


def _stages_1_2(state: State) -> str:
    return "" if stage_may_be(state, 1, 2) else "stages 1, 2 only"


def _one_node(state: State) -> str:
    if not stage_at_least(state, 3):
        return "needs stage 3"
    return "" if len(state.plan.cluster.hosts or {}) > 1 or state.plan.cluster.hostfile else "one host: no gain"


def _written_stage(state: State) -> Any:
    """Return the value that is set now; a boolean stands for its stage."""
    return int(zero) if isinstance(zero := state.plan.get(ZERO_PATH, None), bool) else state.plan.get(f"{ZERO_PATH}.stage", UNSET)


def _stage_choice(state: State, stage: int) -> tuple[int, str, str]:
    """Return a stage together with the Plan's own offload."""
    return stage, *own_offload(state)


def _field(key: str, label: str, kind: Any, least: int, **more: Any) -> Field:
    return Field(path=f"{ZERO_PATH}.{key}", label=label, kind=kind, **{"disabled": _needs(least), **more})


STAGES = (
    Option(value=0, label="0  nothing", says="each rank holds everything"),
    Option(value=1, label="1  optimizer states", says="as fast as stage 0"),
    Option(value=2, label="2  + gradients", says="as fast, less memory"),
    Option(value=3, label="3  + parameters", says="smallest, 1.5x traffic"),
)

STAGE = Field(
    path=f"{ZERO_PATH}.stage",
    label="ZeRO stage",
    kind="choice",
    spread=True,
    options=STAGES,
    read=_written_stage,
    below=lambda state, _width: other_ways(state, [_stage_choice(state, stage) for stage in range(4)]),
)
DETAILS = (
    _field("overlap_comm", "Overlap communication", "toggle", 1, title="Communication"),
    _field("reduce_bucket_size", "Reduce bucket", "number", 1, unit="elements"),
    _field("allgather_bucket_size", "Gather bucket", "number", 1, unit="elements", disabled=_stages_1_2),
    _field("contiguous_gradients", "Contiguous gradients", "toggle", 1),
    _field("round_robin_gradients", "Round-robin gradients", "toggle", 1, disabled=_stages_1_2),
    _field("stage3_prefetch_bucket_size", "Prefetch bucket", "number", 3, unit="elements", title="Stage 3"),
    _field("stage3_param_persistence_threshold", "Keep whole below", "number", 3, unit="elements"),
    _field("stage3_max_live_parameters", "Live parameters", "number", 3, unit="elements"),
    _field("stage3_max_reuse_distance", "Reuse distance", "number", 3, unit="elements"),
    _field("stage3_gather_16bit_weights_on_model_save", "16-bit weights on save", "toggle", 3),
    _field("zero_hpz_partition_size", "Secondary shards (hpZ)", "number", 3, unit="ranks", disabled=_one_node, title="ZeRO++"),
    _field("zero_quantized_weights", "Quantized weights (qwZ)", "toggle", 3),
    _field("zero_quantized_gradients", "Quantized grads (qgZ)", "toggle", 3),
)

ZERO = Step(
    id="zero",
    title="ZeRO stage",
    question="What is sharded over the ranks instead of copied to each of them?",
    owns=(ZERO_PATH,),
    value=stage_text,
    fields=lambda state: (*model_choice(state), with_auto(with_figures(STAGE, state, _stage_choice), state), *DETAILS),
)
