"""Rules about the learning-rate scheduler that DeepSpeed builds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.base.text import similar_words
from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.prepared import scheduler_given

SCHEDULES = "runtime/lr_schedules.py"
TYPE, PARAMS = "scheduler.type", "scheduler.params"
WARMUP = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
TORCH: tuple[str, ...] = (
    "LambdaLR",
    "MultiplicativeLR",
    "StepLR",
    "MultiStepLR",
    "ConstantLR",
    "LinearLR",
    "ExponentialLR",
    "CosineAnnealingLR",
)
TORCH += ("PolynomialLR", "CyclicLR", "OneCycleLR", "CosineAnnealingWarmRestarts", "ReduceLROnPlateau", "SequentialLR", "ChainedScheduler")
"""The classes of torch.optim.lr_scheduler, which the engine uses if DeepSpeed has no schedule of that name."""


def kind(c: Context) -> str:
    """Return the scheduler that is built; "" without an optimizer that the engine knows."""
    built = c.text(TYPE)
    return built if c.optimizer or (c.plan is not None and c.plan.job.optimizer == "script") else ""


def param(c: Context, name: str) -> Any:
    """Return a parameter as written; MISSING if it is absent."""
    return c.section(PARAMS).get(name, MISSING)


@rule("DS163", "error", when="initialize", says="DeepSpeed does not recognize LR scheduler", source="runtime/engine.py:1929")
def unknown_scheduler(c: Context) -> Problems:
    """A scheduler that neither DeepSpeed nor torch has."""
    name = kind(c)
    if name and name not in c.release.schedulers and name not in TORCH:
        known = {known.lower(): known for known in (*c.release.schedulers, *TORCH)}
        close = similar_words(name.lower(), known, 1, 0.7)
        new = known[close[0]] if close else "WarmupLR"
        message = f"there is no scheduler {name}" + (f": did you mean {new}?" if close else "")
        says = f"DeepSpeed does not recognize LR scheduler {name}"
        yield c.problem(TYPE, message, says=says, fix=c.put(TYPE, new, f"write {new}"))


@rule("DS164", "error", when="initialize", says="argument after ** must be a mapping", source="runtime/engine.py:1935")
def without_params(c: Context) -> Problems:
    """A scheduler without params, or with params that are not a section."""
    name, params = kind(c), c.written(PARAMS)
    if name and not isinstance(params, Mapping):
        new = {key: 1000 for key, fact in c.release.schedulers.get(name, {}).items() if "required" in fact and "steps" in key}
        yield c.problem(PARAMS, f"{name} needs a section params, even an empty one", fix=c.put(PARAMS, new, "add params"))


@rule("DS165", "error", when="initialize", says="missing 1 required positional argument", source=f"{SCHEDULES}:483,814,865")
def required_params(c: Context) -> Problems:
    """A parameter that the scheduler requires."""
    name = kind(c)
    if not isinstance(c.written(PARAMS), Mapping):
        return
    missing = [key for key, fact in c.release.schedulers.get(name, {}).items() if "required" in fact and key not in c.section(PARAMS)]
    filled_in = c.raw["scheduler"].get("params", {}) if isinstance(c.raw.get("scheduler"), Mapping) else {}
    for key in missing:
        if c.integration != "deepspeed" and isinstance(filled_in, Mapping) and filled_in.get(key) == AUTO:
            continue
        says = f"missing {len(missing)} required positional argument"
        value = {"total_num_steps": 1000, "cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4}.get(key, 1)
        yield c.problem(f"{PARAMS}.{key}", f"{name} needs {key}", says=says, fix=c.put(f"{PARAMS}.{key}", value, f"add {key} {value}"))


@rule("DS167", "error", when="initialize", says="must be a positive integer", source=f"{SCHEDULES}:734,875", since="0.19.8")
def warmup_steps(c: Context) -> Problems:
    """The number of warm-up steps is not a positive integer."""
    value = param(c, "warmup_num_steps")
    if (
        kind(c) in WARMUP
        and value is not MISSING
        and value != AUTO
        and (not isinstance(value, int) or isinstance(value, bool) or value < 1)
    ):
        path = f"{PARAMS}.warmup_num_steps"
        new = max(1, int(value)) if isinstance(value, (int, float)) and abs(value) < 1e15 else 1000
        says = f"warmup_num_steps must be a positive integer, got {value}"
        yield c.problem(path, f"warmup_num_steps is {value}: a whole number from 1", says=says, fix=c.put(path, new, f"write {new}"))


@rule("DS168", "warning", says="is less than warmup_num_steps", source=f"{SCHEDULES}:827,894")
def warmup_longer_than_training(c: Context) -> Problems:
    """The warm-up is longer than the training."""
    total, warmup = param(c, "total_num_steps"), param(c, "warmup_num_steps")
    steps = 1000 if warmup is MISSING else warmup
    if kind(c) in WARMUP[1:] and isinstance(total, int) and isinstance(steps, int) and total < steps and total > 0:
        path = f"{PARAMS}.warmup_num_steps"
        left_out = " (left out, it is 1000)" if warmup is MISSING else ""
        says = f"total_num_steps {total} is less than warmup_num_steps {steps}"
        new = max(1, total // 10)
        message = f"{total} steps in all, {steps} of warm-up{left_out}"
        yield c.problem(path, message, says=says, fix=c.put(path, new, f"write {new}"))


@rule("DS169", "warning", source=f"{SCHEDULES}:818")
def peak_of_the_decay(c: Context) -> Problems:
    """WarmupDecayLR without warmup_max_lr rises to 0.001, whatever the optimizer's learning rate."""
    rate = c.section("optimizer.params").get("lr")
    filled = c.integration != "deepspeed"
    if (
        kind(c) == "WarmupDecayLR"
        and param(c, "warmup_max_lr") is MISSING
        and isinstance(rate, (int, float))
        and rate != 0.001
        and not filled
    ):
        path = f"{PARAMS}.warmup_max_lr"
        message = f"WarmupDecayLR rises to 0.001, not to the optimizer's {rate:g}, as warmup_max_lr is left out"
        if isinstance(c.written(PARAMS), Mapping):
            yield c.problem(path, message, fix=c.put(path, rate, f"write {rate:g}"))


@rule("DS170", "warning", says="Using unknown warmup_type", source=f"{SCHEDULES}:747")
def warmup_type(c: Context) -> Problems:
    """The shape of the warm-up is neither log nor linear: log is used."""
    value = param(c, "warmup_type")
    if kind(c) in WARMUP and value is not MISSING and value != AUTO and value not in ("log", "linear"):
        path = f"{PARAMS}.warmup_type"
        yield c.problem(
            path,
            f"warmup_type is {value!r}: log or linear",
            says=f"Using unknown warmup_type: {value}",
            fix=c.put(path, "log", "write log"),
        )


@rule("DS171", "error", when="initialize", says="must be", source=f"{SCHEDULES}:371,527", since="0.19.8")
def step_sizes(c: Context) -> Problems:
    """A step size of zero or less."""
    for name, scheduler, says in (
        ("lr_range_test_step_size", "LRRangeTest", "lr_range_test_step_size must be a positive integer"),
        ("cycle_first_step_size", "OneCycle", "cycle_first_step_size must be positive"),
    ):
        value = param(c, name)
        if kind(c) == scheduler and isinstance(value, (int, float)) and value <= 0:
            path = f"{PARAMS}.{name}"
            yield c.problem(
                path, f"{name} is {value:g}: it must be greater than 0", says=says, fix=c.put(path, 2000, "write 2000, the default")
            )


@rule("DS173", "warning", says="cycle_momentum is disabled because optimizer", source=f"{SCHEDULES}:565")
def momentum_to_cycle(c: Context) -> Problems:
    """OneCycle should cycle the momentum of an optimizer without betas."""
    no_betas = c.optimizer in ("SGD", "RMSprop", "Adadelta", "adagrad", "ASGD", "Rprop", "Adafactor")
    if kind(c) == "OneCycle" and no_betas and param(c, "cycle_momentum") in (MISSING, True) and isinstance(c.written(PARAMS), Mapping):
        path = f"{PARAMS}.cycle_momentum"
        yield c.problem(path, f"{c.optimizer} has no betas whose momentum could cycle", fix=c.put(path, False, "turn cycle_momentum off"))


@rule("DS174", "error", when="initialize", says="is not an Optimizer", source="torch/optim/lr_scheduler.py, runtime/engine.py:1935")
def torch_scheduler(c: Context) -> Problems:
    """A scheduler of torch around DeepSpeed's wrapped optimizer, which torch refuses."""
    from dstui.check.rules.precision import model_type

    if kind(c) in TORCH and (c.stage > 0 or model_type(c) != "fp32") and isinstance(c.written(PARAMS), Mapping):
        fix = c.put("scheduler", {"type": "WarmupLR", "params": {}}, "use WarmupLR, or build it in the script")
        yield c.problem(TYPE, f"torch's {kind(c)} cannot take an optimizer that DeepSpeed has wrapped", fix=fix)


@rule("DS175", "error", when="initialize", says="got an unexpected keyword argument", source="runtime/engine.py:1935")
def unknown_param(c: Context) -> Problems:
    """A parameter that the scheduler does not accept."""
    known = c.release.schedulers.get(kind(c))
    if known is None:
        return
    for name in c.section(PARAMS):
        if name not in known:
            path = f"{PARAMS}.{name}"
            close = similar_words(name, known, 1, 0.75)
            if close and close[0] not in c.section(PARAMS):
                fix, words = c.move(path, f"{PARAMS}.{close[0]}", f"rename it to {close[0]}"), f": did you mean {close[0]}?"
            else:
                fix, words = c.drop(path, f"remove {name}"), ""
            says = f"got an unexpected keyword argument '{name}'"
            yield c.problem(path, f"{kind(c)} takes no {name}{words}", says=says, fix=fix)


@rule("DS311", "error", when="initialize", says="unsupported operand type(s)", source=f"{SCHEDULES}:743")
def number_in_quotes(c: Context) -> Problems:
    """A number of the scheduler is a string."""
    known = c.release.schedulers.get(kind(c), {})
    for name, value in c.section(PARAMS).items():
        if name in known and isinstance(value, str) and value != AUTO and name not in ("warmup_type", "warmup_num_steps"):
            path = f"{PARAMS}.{name}"
            try:
                new: Any = float(value)
            except ValueError:
                new = known[name].get("default", 1)
            new = int(new) if isinstance(new, float) and new == int(new) and "steps" in name else new
            yield c.problem(path, f"{name} is the string {value!r}", fix=c.put(path, new, f"write {new}"))


@rule("DS176", "warning", source="runtime/engine.py:681-689")
def without_optimizer(c: Context) -> Problems:
    """A scheduler in the configuration without an optimizer there: it is only built if the script builds an optimizer."""
    if c.text(TYPE) and "optimizer" not in c.raw and c.plan is None and c.integration == "deepspeed":
        message = "the scheduler acts on the script's optimizer; without one it is never built"
        yield c.problem("scheduler", message, severity="info")


@rule("DS312", "error", when="initialize", source="runtime/engine.py:1527")
def two_schedulers(c: Context) -> Problems:
    """The script and the configuration both build a scheduler: accelerate refuses that, DeepSpeed uses the script's."""
    if c.plan is None or not c.text(TYPE) or (c.plan.job.scheduler != "script" and scheduler_given(c) != "script"):
        return
    fix = c.drop("scheduler", "remove it here")
    if c.integration == "accelerate":
        why = "accelerate: You cannot specify a scheduler in the config file and in the code at the same time. (DummyScheduler is the way)"
        yield c.problem("scheduler", "the script builds a scheduler, and so does the configuration", why=why, when="initialize", fix=fix)
    else:
        yield c.problem("scheduler", "the script's scheduler replaces this one", why="this one is never built", severity="warning", fix=fix)
