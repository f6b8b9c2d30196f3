"""Rules about ZenFlow: it updates important gradients on the GPU, and the rest meanwhile on the CPU."""

from __future__ import annotations

from collections.abc import Mapping

from dstui.check.auto_values import AUTO
from dstui.check.context import Context
from dstui.check.rule import Problems, rule

ZENFLOW = "zero_optimization.zenflow"
CONFIG = "runtime/zenflow/zenflow_config.py"
ENGINE = "runtime/zenflow/engine.py"


def is_configured(c: Context) -> bool:
    """Return whether ZenFlow is configured."""
    return isinstance(c.written(ZENFLOW), Mapping)


@rule("DS162", "error", when="parse", says="must be", source=f"{CONFIG}:15-70", since="0.18.2")
def values(c: Context) -> Problems:
    """A strategy or interval that ZenFlow does not know."""
    if not is_configured(c):
        return
    strategy = f"{ZENFLOW}.select_strategy"
    if c.fit(strategy).ok and c.value(strategy) not in ("auto", "step", "epoch"):
        says = 'select_strategy must be one of "auto", "step", or "epoch"'
        yield c.problem(
            strategy, f"select_strategy is {c.value(strategy)!r}: auto, step or epoch", says=says, fix=c.drop(strategy, "remove it: auto")
        )
    for name in ("select_interval", "update_interval"):
        path = f"{ZENFLOW}.{name}"
        value = c.value(path)
        if not c.has(path) or not c.fit(path).ok:
            continue
        if isinstance(value, str) and value != AUTO:
            says = f'If {name} is a string, it must be "auto"'
            yield c.problem(path, f"{name} is {value!r}: auto or a number of steps", says=says, fix=c.drop(path, "remove it: auto"))
        elif name == "update_interval" and isinstance(value, int) and value < 1:
            yield from _below_one(c, path, value)


def _below_one(c: Context, path: str, value: int) -> Problems:
    """Yield problems of an update interval below 1.

    Before 0.19, DeepSpeed divides by 0 in the first step, and a negative one updates in every step.
    """
    fix = c.put(path, 1, "write 1")
    if not c.before("0.19"):
        says = "If update_interval is a number, it must be at least 1"
        yield c.problem(path, f"update_interval is {value}: at least 1", says=says, fix=fix)
    elif value == 0 and c.stage in (1, 2):
        yield c.problem(path, "update_interval is 0: at least 1", when="run", says="integer modulo by zero", fix=fix)
    else:
        yield c.problem(path, f"update_interval is {value}, which means every step", severity="info", fix=fix)


@rule(
    "DS154",
    "error",
    when="initialize",
    says="Zenflow must be used with cpu offload",
    source="runtime/zenflow/zenflow_stage_1_and_2.py:116",
    since="0.18.2",
)
def without_offload(c: Context) -> Problems:
    """ZenFlow without the optimizer in CPU memory."""
    if is_configured(c) and c.stage in (1, 2) and c.offload("optimizer") == "none":
        yield c.problem(
            ZENFLOW, "zenflow needs offload_optimizer with device cpu", fix=c.drop(ZENFLOW, "remove zenflow, or offload the optimizer")
        )


@rule("DS317", "error", when="initialize", says="got an unexpected keyword argument 'torch_adam'", source=ENGINE, since="0.19.8")
def with_torch_adam(c: Context) -> Problems:
    """ZenFlow with torch's own Adam."""
    path = "optimizer.params.torch_adam"
    if is_configured(c) and c.stage in (1, 2) and c.offload("optimizer") != "none" and c.section("optimizer.params").get("torch_adam"):
        yield c.problem(path, "zenflow brings its own Adam: torch_adam cannot be combined with it", fix=c.drop(path, "remove torch_adam"))


@rule("DS155", "error", when="run", says="has no attribute 'zenflow_need_update'", source=f"{ENGINE}:84", since="0.18.2")
def without_zero(c: Context) -> Problems:
    """ZenFlow at stage 0."""
    if is_configured(c) and c.stage == 0:
        yield c.problem(ZENFLOW, "zenflow needs ZeRO stage 1, 2 or 3", fix=c.drop(ZENFLOW, "remove zenflow"))


@rule(
    "DS156",
    "error",
    when="initialize",
    says="Torch not compiled with CUDA enabled",
    source="runtime/zenflow/engine_stage3.py:192",
    since="0.18.2",
)
def stage_3_on_cpu(c: Context) -> Problems:
    """ZenFlow at stage 3 on ranks without a GPU."""
    if is_configured(c) and c.stage == 3 and c.cpu_only:
        yield c.problem(ZENFLOW, "zenflow at stage 3 needs GPUs", fix=c.drop(ZENFLOW, "remove zenflow"))


@rule("DS157", "error", when="initialize", says="select_interval", source=f"{ENGINE}:39-45", since="0.18.2")
def strategy_and_interval(c: Context) -> Problems:
    """An interval that cannot be combined with the strategy."""
    if not is_configured(c) or not 1 <= c.stage <= 3:
        return
    strategy, interval = c.value(f"{ZENFLOW}.select_strategy"), c.value(f"{ZENFLOW}.select_interval")
    path = f"{ZENFLOW}.select_interval"
    if strategy in ("step", "epoch") and interval == AUTO:
        says = "If don't use auto select strategy, select_interval must be a number."
        yield c.problem(path, f"select_strategy {strategy} needs a number of {strategy}s", says=says, fix=c.put(path, 1, "write 1"))
    elif strategy == "auto" and isinstance(interval, int) and interval != 1:
        says = "If use auto select strategy, select_interval will be set to 1"
        yield c.problem(path, "select_strategy auto takes no interval", says=says, fix=c.drop(path, "remove select_interval"))


@rule(
    "DS159",
    "error",
    when="initialize",
    says="Select interval must be greater or equal to update interval",
    source=f"{ENGINE}:63",
    since="0.18.2",
)
def update_longer_than_select(c: Context) -> Problems:
    """Updates are farther apart than selections."""
    select, update = c.number(f"{ZENFLOW}.select_interval"), c.number(f"{ZENFLOW}.update_interval")
    if (
        is_configured(c)
        and c.stage
        and c.text(f"{ZENFLOW}.select_strategy") == "step"
        and select is not None
        and update is not None
        and update > select
    ):
        path = f"{ZENFLOW}.update_interval"
        fix = c.put(path, int(max(1, select)), f"write {max(1, select):g}")
        yield c.problem(path, f"update_interval {update:g} is more than select_interval {select:g}", fix=fix)


@rule(
    "DS160",
    "error",
    when="initialize",
    says="offload selective optimizer should be used with overlap_comm",
    source="runtime/zenflow/zenflow_stage_1_and_2.py:76",
    since="0.18.2",
)
def offload_and_overlap(c: Context) -> Problems:
    """ZenFlow's own offload without overlap_comm."""
    path = "zero_optimization.overlap_comm"
    if is_configured(c) and c.on(f"{ZENFLOW}.offload") and c.stage in (1, 2) and not c.on(path):
        yield c.problem(path, "zenflow.offload needs overlap_comm", fix=c.put(path, True, "turn overlap_comm on"))


@rule("DS161", "info", source=f"{ENGINE}:69", since="0.18.2")
def accumulation_is_replaced(c: Context) -> Problems:
    """ZenFlow uses update_interval as the accumulation steps."""
    if is_configured(c) and c.stage and c.number(f"{ZENFLOW}.update_interval") is not None and c.has("gradient_accumulation_steps"):
        yield c.problem("gradient_accumulation_steps", "zenflow replaces gradient_accumulation_steps by its update_interval")
