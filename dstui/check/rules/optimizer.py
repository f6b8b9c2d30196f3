"""Rules about the optimizer that DeepSpeed builds: its type, its arguments, and its use with ZeRO and offload."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from dstui.base.text import similar_words
from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.releases import REPLACED
from dstui.plan.catalogue import Release
from dstui.plan.finding import Fix

ENGINE = "runtime/engine.py"
TYPE, PARAMS = "optimizer.type", "optimizer.params"
ADAM = ("adam", "adamw")
TESTED = ("adam", "adamw", "adagrad", "lion", "muon")
"""The types that DeepSpeed considers tested with ZeRO."""
OURS = ("torch_adam", "adam_w_mode", "fp32_optimizer_states")
"""Arguments that DeepSpeed removes for its own use."""


def script_builds(c: Context) -> bool:
    """Return whether the Plan says that the script builds the optimizer."""
    return c.plan is not None and c.plan.job.optimizer == "script"


def script_builds_unasked(c: Context) -> bool:
    """Return whether the script builds the optimizer although the Plan says otherwise, which PL025 reports."""
    return c.facts is not None and c.facts.optimizer == "script" and not script_builds(c)


def torch_adam(c: Context) -> bool:
    """Return whether Adam is torch's own."""
    return c.optimizer in ADAM and bool(c.section(PARAMS).get("torch_adam"))


def built_as(c: Context) -> str:
    """Return the class that DeepSpeed builds, by its name in the catalogue; "" if unknown."""
    kind, offloaded = c.optimizer, c.stage > 0 and c.offload("optimizer") != "none"
    if kind in ADAM:
        return ("AdamW" if kind == "adamw" else "Adam") if torch_adam(c) else "cpuadam" if offloaded else "adam"
    if kind in ("adagrad", "lion"):
        return "cpu" + kind if offloaded else {"adagrad": "Adagrad"}.get(kind, kind)
    return kind if kind in c.release.optimizers else ""


@cache
def types(known: Release) -> frozenset[str]:
    """Return every type that can be built: DeepSpeed's own in lower case, torch.optim's classes by their names."""
    return frozenset(known.optimizer_types) | frozenset(name for name in known.optimizers if name[0].isupper())


@rule("DS307", "error", when="parse", says="has no attribute", source="runtime/config.py:289")
def type_is_no_word(c: Context) -> Problems:
    """optimizer.type is not a word."""
    kind = c.written(TYPE)
    if kind is not MISSING and kind is not None and not isinstance(kind, str):
        yield c.problem(TYPE, "optimizer.type must be a name, such as AdamW", fix=c.put(TYPE, "AdamW", "write AdamW"))


@rule("DS308", "error", when="parse", says="has no attribute 'keys'", source="runtime/config.py:723")
def params_are_none(c: Context) -> Problems:
    """optimizer.params is not a section."""
    params = c.written(PARAMS)
    if isinstance(c.written(TYPE), str) and params is not MISSING and params is not None and not isinstance(params, Mapping):
        yield c.problem(PARAMS, "optimizer.params must be a section", fix=c.drop(PARAMS, "remove it: the defaults are used"))


@rule("DS022", "warning", source="runtime/config.py:289, runtime/engine.py:3395")
def no_type(c: Context) -> Problems:
    """An optimizer section without a type: no optimizer is built."""
    if isinstance(c.written("optimizer"), Mapping) and c.written(TYPE) in (MISSING, None):
        yield c.problem("optimizer", "the optimizer section has no type: no optimizer is built", fix=_typed(c))


def _typed(c: Context) -> Fix | None:
    """Return a fix: type AdamW if all arguments are known numbers, else remove the section, since it has no effect."""
    params = c.section(PARAMS)
    known = arguments(c.release, "adam") if isinstance(c.flat.get(PARAMS, {}), Mapping) else frozenset()
    plain = all(name in known and isinstance(value, (int, float, list)) for name, value in params.items())
    if plain and known and not c.has("scheduler") and "amsgrad" not in params:
        return c.put(TYPE, "AdamW", "add type AdamW")
    return c.drop("optimizer", "remove the section") if c.plan is None else None


@rule(
    "DS075",
    "error",
    when="run",
    says="must provide optimizer during init in order to use backward",
    source=f"{ENGINE}:3395",
    readers=("deepspeed",),
)
def no_optimizer(c: Context) -> Problems:
    """Nothing builds an optimizer: the Plan leaves it to the configuration, which has none."""
    if c.plan is None or c.plan.job.optimizer != "config" or c.optimizer or "optimizer" in c.raw or not c.root.startswith("deepspeed"):
        return
    if script_builds_unasked(c):
        return
    if c.stage in (1, 2):
        says, when = f"zero stage {c.stage} requires an optimizer", "initialize"
    elif c.stage == 3:
        says, when = "'DeepSpeedZeRoOffload' object has no attribute 'set_gradient_accumulation_boundary'", "run"
    else:
        says, when = "", "run"
    words = "add AdamW (or say job.optimizer: script, or none where nothing is trained)"
    fix = c.put("optimizer", {"type": "AdamW", "params": {"lr": 1e-4}}, words)
    reported = c.plan.get("job.optimizer") is not None  # as the mere default: the script may well build one
    message = "no optimizer: job.optimizer is config, and the configuration has none"
    yield c.problem("optimizer", message, says=says, when=when, fix=fix, severity=None if reported else "warning")


@rule("DS078", "warning", source=f"{ENGINE}:1527")
def two_optimizers(c: Context) -> Problems:
    """The script and the configuration both build an optimizer: the script's is used."""
    if script_builds(c) and c.optimizer and c.integration == "deepspeed":
        why = "DeepSpeed uses the script's; the type and learning rate here have no effect"
        yield c.problem("optimizer", "the script's optimizer replaces this one", why=why, fix=c.drop("optimizer", "remove it here"))


@rule("DS079", "error", when="initialize", says="is not a supported DeepSpeed Optimizer", source=f"{ENGINE}:2018")
def unknown_type(c: Context) -> Problems:
    """An optimizer that neither DeepSpeed nor torch.optim has."""
    kind = c.optimizer
    if not kind or kind in types(c.release) or kind.lower() in REPLACED or script_builds(c):
        return
    known = {name.lower(): name for name in types(c.release)}
    close = similar_words(kind.lower(), known, 1, 0.75)
    new = known[close[0]] if close else "AdamW"
    says = f"{kind} is not a supported DeepSpeed Optimizer"
    message = f"there is no optimizer {kind}" + (f": did you mean {new}?" if close else "")
    yield c.problem(TYPE, message, says=says, fix=c.put(TYPE, new, f"write {new}"))


@rule("DS080", "error", when="initialize", says="You are using an untested ZeRO Optimizer", source=f"{ENGINE}:2299")
def untested_with_zero(c: Context) -> Problems:
    """ZeRO with an optimizer that DeepSpeed has not tested with it."""
    kind = c.optimizer
    if c.stage == 0 or not kind or c.on("zero_allow_untested_optimizer") or script_builds(c):
        return
    own = kind in TESTED or kind.startswith(("onebit", "zeroone"))
    untested = kind in types(c.release) and not own and kind not in ("Adam", "AdamW", "muadam", "muadamw", "musgd")
    of_zenflow = c.before("0.19") and built_as(c) == "cpuadam" and isinstance(c.written("zero_optimization.zenflow"), Mapping)
    if untested or of_zenflow:
        fix = c.put("zero_allow_untested_optimizer", True, "allow it: zero_allow_untested_optimizer true")
        yield c.problem(TYPE, f"{'the Adam of zenflow' if of_zenflow else kind} with ZeRO must be allowed", fix=fix)


@rule(
    "DS081",
    "error",
    when="initialize",
    says="You are using ZeRO-Offload with a client provided optimizer",
    source=f"{ENGINE}:2345",
    readers=("deepspeed",),
)
def offload_of_the_scripts(c: Context) -> Problems:
    """Offload with an optimizer that the script builds."""
    if script_builds(c) and c.stage > 0 and c.offload("optimizer") != "none" and c.on("zero_force_ds_cpu_optimizer"):
        fix = c.put("zero_force_ds_cpu_optimizer", False, "allow it: zero_force_ds_cpu_optimizer false")
        message = "offload needs DeepSpeedCPUAdam: let the script or the configuration build it"
        yield c.problem("zero_optimization.offload_optimizer", message, severity="warning", why=FORCE, fix=fix)


FORCE = "DeepSpeed refuses any other optimizer of the script's, unless zero_force_ds_cpu_optimizer is false"


@rule("DS082", "error", when="initialize", says="'max_grad_norm' is not supported as an optimizer parameter", source=f"{ENGINE}:2482")
def clipping_in_the_optimizer(c: Context) -> Problems:
    """max_grad_norm among the optimizer's arguments: the key is gradient_clipping, at the top level."""
    path = f"{PARAMS}.max_grad_norm"
    if not c.has(path) or not c.optimizer or script_builds(c):
        return
    value = c.written(path)
    if c.has("gradient_clipping") or not isinstance(value, (int, float)):
        fix = c.drop(path, "remove it")
    else:
        fix = c.move(path, "gradient_clipping", "move it to gradient_clipping")
    if isinstance(value, (int, float)) or value == AUTO:
        yield c.problem(path, "the optimizer takes no max_grad_norm: gradient_clipping does that", fix=fix)


@rule("DS309", "error", when="parse", says="'>' not supported between instances of", source="runtime/config.py:724")
def clipping_is_no_number(c: Context) -> Problems:
    """max_grad_norm among the optimizer's arguments is not a number."""
    path = f"{PARAMS}.max_grad_norm"
    value = c.written(path)
    if value is not MISSING and isinstance(c.written(TYPE), str) and not isinstance(value, (int, float)):
        yield c.problem(path, "max_grad_norm must be a number, and is called gradient_clipping", fix=c.drop(path, "remove it"))


@cache
def arguments(known: Release, kind: str) -> frozenset[str]:
    """Return the arguments of the class, and those that DeepSpeed removes before."""
    return frozenset(known.optimizers.get(kind, ())) | frozenset(OURS)


@rule("DS083", "error", when="initialize", says="got an unexpected keyword argument", source=f"{ENGINE}:2493")
def unknown_argument(c: Context) -> Problems:
    """An argument that the optimizer does not accept."""
    kind = built_as(c)
    if not kind or script_builds(c) or not isinstance(c.written(PARAMS), Mapping):
        return
    known = arguments(c.release, kind)
    for name in c.section(PARAMS):
        if name not in known and name != "max_grad_norm" and not (torch_adam(c) and name == "foreach"):
            path = f"{PARAMS}.{name}"
            close = similar_words(name, known, 1, 0.75)
            if close and f"{PARAMS}.{close[0]}" not in c.flat:
                fix, words = c.move(path, f"{PARAMS}.{close[0]}", f"rename it to {close[0]}"), f": did you mean {close[0]}?"
            else:
                fix, words = c.drop(path, f"remove {name}"), ""
            says = f"got an unexpected keyword argument '{name}'"
            yield c.problem(path, f"{c.written(TYPE)} takes no {name}{words}", says=says, fix=fix)


@rule("DS084", "error", when="initialize", says="does not support the AMSGrad variant.", source="ops/adam/fused_adam.py:88")
def amsgrad(c: Context) -> Problems:
    """AMSGrad with DeepSpeed's own optimizers."""
    path = f"{PARAMS}.amsgrad"
    if c.section(PARAMS).get("amsgrad") is True and built_as(c) in ("adam", "cpuadam", "lamb") and not script_builds(c):
        yield c.problem(
            path, f"DeepSpeed's own {c.written(TYPE)} has no AMSGrad", fix=c.drop(path, "remove amsgrad (or set torch_adam true)")
        )


@rule("DS085", "info", source=f"{ENGINE}:2487-2490")
def adam_is_adamw(c: Context) -> Problems:
    """Adam with weight decay is AdamW, unless adam_w_mode is false."""
    decay = c.section(PARAMS).get("weight_decay")
    if (
        c.optimizer == "adam"
        and isinstance(decay, (int, float))
        and decay
        and "adam_w_mode" not in c.section(PARAMS)
        and not script_builds(c)
    ):
        why = "DeepSpeed decouples the weight decay for Adam too"
        fix = c.put(f"{PARAMS}.adam_w_mode", True, "set adam_w_mode true explicitly (false couples it)")
        yield c.problem(TYPE, "Adam decays weights as AdamW does here", why=why, fix=fix)


@rule("DS086", "warning", source=f"{ENGINE}:2380")
def torch_adam_with_offload(c: Context) -> Problems:
    """torch's Adam on the CPU: much slower than DeepSpeed's."""
    path = f"{PARAMS}.torch_adam"
    if torch_adam(c) and c.stage > 0 and c.offload("optimizer") != "none":
        yield c.problem(path, "torch_adam makes offload slow: DeepSpeedCPUAdam is many times faster", fix=c.drop(path, "remove torch_adam"))


@rule("DS087", "error", when="initialize", says="DeepSpeed lamb optimizer requires dynamic loss scaling", source=f"{ENGINE}:2022")
def lamb_and_loss_scale(c: Context) -> Problems:
    """Lamb with a fixed loss scale."""
    if c.optimizer == "lamb" and c.value("fp16.loss_scale") and c.has("fp16.loss_scale"):
        yield c.problem(
            "fp16.loss_scale", "Lamb needs dynamic loss scaling", fix=c.put("fp16.loss_scale", 0, "write 0 for dynamic loss scaling")
        )


@rule(
    "DS088", "error", when="initialize", says="This op had not been implemented on CPU backend.", source="ops/op_builder/cpu/no_impl.py:21"
)
def no_cpu_version(c: Context) -> Problems:
    """An optimizer that exists for GPUs only, on ranks without one."""
    lion = c.optimizer == "lion" and built_as(c) == "lion"
    if c.cpu_only and (c.optimizer == "lamb" or lion) and not script_builds(c):
        yield c.problem(TYPE, f"DeepSpeed's {c.written(TYPE)} needs a GPU", fix=c.put("optimizer", {"type": "AdamW"}, "use AdamW"))


@rule("DS089", "info", says="Install mup to use", source=f"{ENGINE}:2512-2529")
def needs_mup(c: Context) -> Problems:
    """An optimizer of the package mup."""
    if c.optimizer in ("muadam", "muadamw", "musgd"):
        yield c.problem(TYPE, f"{c.written(TYPE)} comes from the package mup, which must be installed")


@rule(
    "DS090",
    "error",
    when="initialize",
    says="Muon and reduce scatter cannot be used together",
    source="runtime/zero/stage3.py:361",
    since="0.19.8",
)
def muon_and_scatter(c: Context) -> Problems:
    """Muon at stage 3 with reduce_scatter, which is on unless turned off."""
    path = "zero_optimization.reduce_scatter"
    if c.optimizer == "muon" and c.stage == 3 and not script_builds(c):
        if c.on(path):
            yield c.problem(path, "Muon at stage 3 needs reduce_scatter off", fix=c.put(path, False, "turn reduce_scatter off"))
        quantized = "zero_optimization.zero_quantized_gradients"
        if c.on(quantized):
            says = "Muon and all2all process group cannot be used together"
            yield c.problem(
                quantized, "Muon cannot be combined with zero_quantized_gradients", says=says, fix=c.drop(quantized, "remove it")
            )


NUMBERS = ("lr", "eps", "weight_decay", "momentum")


@rule("DS018", "error", when="run", says="incompatible function arguments", source="ops/adam/fused_adam.py:191")
def number_in_quotes(c: Context) -> Problems:
    """A number of the optimizer is a string, such as "1e-4" in quotes (or 1e-4 read by a YAML 1.1 reader)."""
    if not c.optimizer or script_builds(c):
        return
    for name in NUMBERS:
        value = c.section(PARAMS).get(name)
        if isinstance(value, str) and value != AUTO:
            path = f"{PARAMS}.{name}"
            number = _number(value)
            fix = c.put(path, number, f"write {value} without quotes") if number is not None else c.drop(path, f"remove {name}")
            own = built_as(c) in ("adam",)
            says = "" if own else "not supported between instances of"
            yield c.problem(path, f"{name} is the string {value!r}", says=says, when=None if own else "initialize", fix=fix)


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return None


@rule("DS310", "warning")
def learning_rate(c: Context) -> Problems:
    """An implausible learning rate: zero, negative or above one."""
    path = f"{PARAMS}.lr"
    value = c.section(PARAMS).get("lr")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and c.optimizer and not 0 < value <= 10 and not script_builds(c):
        yield c.problem(
            path,
            f"a learning rate of {value:g}",
            why="training would not progress, or would diverge at once",
            fix=c.put(path, 1e-4, "write 1e-4"),
        )
