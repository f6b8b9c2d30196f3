"""Rules about precision: fp16, bf16, autocast, loss scaling, master weights, and the types of gradients and communication."""

from __future__ import annotations

import math
from typing import Any

from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.optimizer import built_as
from dstui.plan.finding import Fix

PRECISION = "runtime/precision_config.py"
DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("int8", "torch.int8"), "int8"),
}
"""Every name that DeepSpeed knows for a data type."""


def bf16_section(c: Context) -> str:
    """Return the section that bf16 is read from: bfloat16 only if there is no bf16."""
    return "bfloat16" if not_there(c) and c.has("bfloat16") else "bf16"


def not_there(c: Context) -> bool:
    """Return whether DeepSpeed looks for bfloat16 because bf16 is missing (from 0.18 on, null counts as missing)."""
    value = c.written("bf16")
    return value is MISSING or (value is None and not c.before("0.18"))


def model_type(c: Context) -> str:
    """Return the type in which the model is trained: fp16, bf16 or fp32."""
    if c.on("fp16.enabled"):
        return "fp16"
    return "bf16" if c.on(f"{bf16_section(c)}.enabled") else "fp32"


@rule("DS051", "error", when="parse", says="bfloat16 and fp16 modes cannot be simultaneously enabled", source="runtime/config.py:511")
def both_16_bit_types(c: Context) -> Problems:
    """fp16 and bf16 are both on."""
    section = bf16_section(c)
    if c.on("fp16.enabled") and c.on(f"{section}.enabled"):
        message = "fp16 and bf16 are both enabled: keep one (bf16 where the GPUs have it)"
        says = "bf16 and fp16 modes cannot be simultaneously enabled" if c.before("0.16") else ""
        yield c.problem(f"{section}.enabled", message, says=says, fix=c.put("fp16.enabled", False, "turn fp16 off"))


@rule("DS050", "warning", source=f"{PRECISION}:34-38")
def both_spellings_of_bf16(c: Context) -> Problems:
    """bf16 and its old spelling bfloat16 are both there: bfloat16 is ignored."""
    if c.has("bfloat16") and not not_there(c):
        yield c.problem("bfloat16", "bfloat16 is ignored, as bf16 is there too", fix=c.drop("bfloat16", "remove bfloat16"))


@rule("DS052", "error", when="initialize", says="Type bf16 is not supported on your device.", source="runtime/engine.py:2003-2007")
def type_without_hardware(c: Context) -> Problems:
    """A 16-bit type that the machine's GPUs or CPUs do not support."""
    if c.cpu_only:
        yield from _type_without_instructions(c)
    if model_type(c) != "bf16":
        return
    for gpu in c.gpus:
        capability = str(gpu.compute_capability) if gpu.compute_capability else ""
        if capability and int(capability.partition(".")[0]) < 8:
            section = bf16_section(c)
            fix = c.steps("train in fp16 instead", c.put(f"{section}.enabled", False, ""), c.put("fp16.enabled", True, ""))
            message = f"the {gpu.short_name} has no bf16 (compute capability {capability}, 8.0 is needed)"
            yield c.problem(f"{section}.enabled", message, fix=fix)
            return


def _type_without_instructions(c: Context) -> Problems:
    """Yield a problem for a type that DeepSpeed refuses on these CPUs: fp16 needs rare instructions, and before 0.16 no CPU is accepted."""
    kind = model_type(c)
    if kind == "fp32" or c.machine is None:
        return
    taken = getattr(c.machine.software, kind)
    if taken is False or (kind == "fp16" and c.old and taken is not True):
        section = "fp16" if kind == "fp16" else bf16_section(c)
        fix = c.put(f"{section}.enabled", False, "train in 32 bit instead")
        if kind == "fp16" and c.machine.software.bf16 is not False:
            fix = c.steps("train in bf16 instead", c.put("fp16.enabled", False, ""), c.put(f"{bf16_section(c)}.enabled", True, ""))
        says = f"Type {kind} is not supported on your device."
        yield c.problem(f"{section}.enabled", f"DeepSpeed has no {kind} on these CPUs", says=says, fix=fix)


def _decided_here(c: Context, path: str) -> bool:
    """Return whether a value of the right type is set. For a wrong type the rule for all keys applies."""
    return c.has(path) and c.written(path) != AUTO and c.fit(path).ok


@rule("DS053", "error", when="parse", says="fp16.loss_scale must be", source=f"{PRECISION}:122-133", since="0.19.8")
def loss_scale(c: Context) -> Problems:
    """The loss scale is negative, infinite or not a number."""
    path, value = "fp16.loss_scale", c.written("fp16.loss_scale")
    if not _decided_here(c, path):
        return
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not math.isfinite(number) or number < 0:
        yield c.problem(
            path,
            "loss_scale must be a number of 0 or more; 0 is dynamic loss scaling",
            fix=c.put(path, 0, "write 0 for dynamic loss scaling"),
        )


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


@rule(
    "DS054", "error", when="parse", says="must be > 0 when dynamic loss scaling is enabled", source=f"{PRECISION}:142-196", since="0.19.8"
)
def dynamic_loss_scale(c: Context) -> Problems:
    """The window or the minimum of dynamic loss scaling is not a positive integer."""
    dynamic = c.on("fp16.enabled") and c.value("fp16.loss_scale") == 0
    for name, default in (("loss_scale_window", 1000), ("min_loss_scale", 1)):
        path = f"fp16.{name}"
        value = c.written(path)
        if not _decided_here(c, path):
            continue
        fix = c.put(path, default, f"write {default}, the default")
        if isinstance(value, bool) or not _becomes_int(value):
            yield c.problem(path, f"{name} must be a whole number", says=f"fp16.{name} must be", fix=fix)
        elif dynamic and c.fit(path).ok and c.value(path) <= 0:
            yield c.problem(path, f"{name} must be greater than 0, as the loss scale adapts itself", says=f"fp16.{name} {SCALE}", fix=fix)


@rule("DS055", "warning", source="runtime/fp16/loss_scaler.py:256-274")
def dynamic_loss_scale_that_cannot_work(c: Context) -> Problems:
    """The first loss scale is below 1, or a hysteresis below 1 never lowers it."""
    if not c.on("fp16.enabled") or c.value("fp16.loss_scale") != 0:
        return
    for name, least, default, why in (
        ("initial_scale_power", 0, 16, "the loss is made smaller than it is, and small gradients become 0 in fp16"),
        (
            "hysteresis",
            1,
            2,
            "the scale is lowered once it has counted down to 1, which never happens: steps are skipped forever after an overflow",
        ),
    ):
        path = f"fp16.{name}"
        number = c.number(path)
        if number is not None and number < least:
            yield c.problem(
                path, f"{name} is {number:g}, and must be at least {least}", why=why, fix=c.put(path, default, f"write {default}")
            )


SCALE = "must be > 0 when dynamic loss scaling is enabled (loss_scale=0)"


def _becomes_int(value: Any) -> bool:
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


@rule("DS058", "error", when="parse", says="is only supported with ZeRO Stage", source="runtime/config.py:703-709")
def master_weights_and_stage(c: Context) -> Problems:
    """16-bit master weights at a stage without them: 0, and before 0.19 any but 2."""
    old = c.before("0.19")
    for path in ("fp16.fp16_master_weights_and_grads", f"{bf16_section(c)}.bf16_master_weights_and_grads"):
        read = not c.before("0.18") or c.on("fp16.enabled")
        if c.key(path) and read and c.on(path) and (c.stage == 0 or (old and c.stage != 2)):
            name = path.rpartition(".")[2]
            says = f"{name.capitalize()} is only supported with ZeRO Stage " + ("2 for now." if old else "1, 2, or 3.")
            message = f"{name} needs ZeRO stage {'2' if old else '1, 2 or 3'}"
            yield c.problem(path, message, says=says, fix=c.drop(path, f"remove {name}"))


@rule("DS059", "error", when="parse", says="bf16_optimizer_states", source="runtime/config.py:711-714", since="0.19.8")
def bf16_states_alone(c: Context) -> Problems:
    """16-bit optimizer states without ZeRO, or without 16-bit master weights."""
    section = bf16_section(c)
    path, master = f"{section}.bf16_optimizer_states", f"{section}.bf16_master_weights_and_grads"
    if not c.on(path):
        return
    if c.stage == 0:
        says = "bf16_optimizer_states is only supported with ZeRO Stage 1, 2, or 3."
        yield c.problem(
            path, "bf16_optimizer_states needs ZeRO stage 1, 2 or 3", says=says, fix=c.drop(path, "remove bf16_optimizer_states")
        )
    elif not c.on(master):
        says = "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled."
        yield c.problem(
            path, "bf16_optimizer_states needs bf16_master_weights_and_grads", says=says, fix=c.drop(path, "remove bf16_optimizer_states")
        )


@rule(
    "DS060", "error", when="initialize", says="Master weights feature requires", source="runtime/base_optimizer.py:510-521", since="0.19.8"
)
def master_weights_without_offload(c: Context) -> Problems:
    """16-bit master weights without DeepSpeed's own Adam in CPU memory."""
    section, offloaded = bf16_section(c), c.offload("optimizer") != "none"
    states = c.on(f"{section}.bf16_optimizer_states")
    for path in ("fp16.fp16_master_weights_and_grads", f"{section}.bf16_master_weights_and_grads"):
        if not c.on(path) or c.stage == 0:
            continue
        name = path.rpartition(".")[2]
        fix = c.drop(path, f"remove {name}")
        if offloaded and built_as(c) not in ("", "cpuadam"):
            yield c.problem(path, f"{name} needs DeepSpeed's own Adam on the CPU", fix=fix)
        elif not offloaded and not (path.startswith(section) and states):
            if c.section("zero_optimization.offload_optimizer") and built_as(c) == "adam":
                fix = c.put("zero_optimization.offload_optimizer.device", "cpu", "offload the optimizer to the CPU")
            yield c.problem(path, f"{name} needs offload_optimizer with device cpu", fix=fix)


@rule("DS061", "error", when="initialize", says="are mutually exclusive.", source="runtime/base_optimizer.py:499", since="0.19.8")
def both_master_weights(c: Context) -> Problems:
    """Master weights in both fp16 and bf16."""
    section = bf16_section(c)
    fp16, bf16 = "fp16.fp16_master_weights_and_grads", f"{section}.bf16_master_weights_and_grads"
    if c.on(fp16) and c.on(bf16) and c.stage > 0:
        fix = c.drop(fp16, "remove fp16_master_weights_and_grads") if model_type(c) != "fp16" else c.drop(bf16, "remove the bf16 one")
        yield c.problem(fp16, "fp16 and bf16 master weights cannot be combined", fix=fix)


@rule("DS062", "warning", says="overriding fp32_optimizer_states", source="runtime/engine.py:2390", since="0.19.8")
def states_twice(c: Context) -> Problems:
    """16-bit optimizer states, although 32-bit ones are requested as well."""
    path = "optimizer.params.fp32_optimizer_states"
    if c.on(f"{bf16_section(c)}.bf16_optimizer_states") and c.written(path) is True and c.offload("optimizer") != "none":
        yield c.problem(
            path, "fp32_optimizer_states has no effect with bf16_optimizer_states", fix=c.drop(path, "remove fp32_optimizer_states")
        )


@rule("DS026", "error", when="initialize", says="is not a valid DtypeEnum", source="runtime/engine.py:1809")
def unknown_type(c: Context) -> Problems:
    """A word in data_types is not a data type."""
    for name in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
        path = f"data_types.{name}"
        value = c.written(path)
        cast = name != "buffer_dtype" or model_type(c) != "fp32"  # buffers are cast only with a 16-bit model
        if c.key(path) and cast and value not in (MISSING, None) and not known_type(value):
            yield c.problem(path, f"{name} is {value!r}: fp32, fp16 or bf16", fix=c.drop(path, f"remove {name}: it follows the model"))


def known_type(value: Any) -> bool:
    """Return whether DeepSpeed knows the name of a type."""
    return isinstance(value, str) and value in DTYPES


@rule(
    "DS063", "error", when="initialize", says="conflicts with the enabled precision mode", source="runtime/engine.py:1827", since="0.19.8"
)
def parameter_type(c: Context) -> Problems:
    """param_dtype differs from the type in fp16 and bf16."""
    value = c.written("data_types.param_dtype")
    if known_type(value) and DTYPES[value] != model_type(c):
        message = f"param_dtype is {value}, but the model is trained in {model_type(c)}"
        yield c.problem("data_types.param_dtype", message, fix=c.drop("data_types.param_dtype", "remove param_dtype: it follows"))


@rule("DS064", "error", when="initialize", says="unsupported mix of model_dtype", source="runtime/engine.py:2323")
def accumulation_type_without_zero(c: Context) -> Problems:
    """At stage 0, gradients in another type than the model."""
    value = c.written("data_types.grad_accum_dtype")
    if c.stage == 0 and known_type(value) and DTYPES[value] != model_type(c) and (c.optimizer or _script_builds(c)):
        message = f"at stage 0 gradients cannot accumulate in {value} while the model is {model_type(c)}"
        yield c.problem("data_types.grad_accum_dtype", message, fix=c.drop("data_types.grad_accum_dtype", "remove grad_accum_dtype"))


def _script_builds(c: Context) -> bool:
    return c.plan is not None and c.plan.job.optimizer == "script"


@rule("DS065", "info", source="runtime/engine.py:2305-2310")
def another_optimizer_class(c: Context) -> Problems:
    """Stage 1 with bf16 and 32-bit gradients uses DeepSpeed's BF16_Optimizer, whose losses differ slightly."""
    path = "data_types.grad_accum_dtype"
    value = c.written(path)
    if c.stage == 1 and model_type(c) == "bf16" and known_type(value) and DTYPES[value] == "fp32" and c.offload("optimizer") == "none":
        yield c.problem(
            path, "stage 1 with bf16 and fp32 gradients uses the BF16_Optimizer", why="its losses differ slightly from other optimizers'"
        )


@rule("DS066", "error", when="parse", says="data_types.keep_in_fp32_modules must be", source="runtime/config.py:566", since="0.19.8")
def keep_in_fp32(c: Context) -> Problems:
    """keep_in_fp32_modules is neither "auto" nor a list of patterns."""
    path = "data_types.keep_in_fp32_modules"
    value = c.written(path)
    if value is not MISSING and value != AUTO and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        fix = c.put(path, [value], "write a list") if isinstance(value, str) else c.drop(path, "remove it")
        yield c.problem(path, 'keep_in_fp32_modules must be "auto" or a list of patterns', fix=fix)


@rule("DS067", "error", when="parse", says="is not a valid DtypeEnum", source="runtime/config.py:190", since="0.18.2")
def autocast_type(c: Context) -> Problems:
    """torch_autocast.dtype is not a data type."""
    path = "torch_autocast.dtype"
    value = c.written(path)
    if value is not MISSING and not known_type(value):
        yield c.problem(path, f"torch_autocast.dtype is {value!r}: bfloat16 or float16", fix=c.put(path, "bfloat16", "write bfloat16"))


@rule("DS068", "warning", source="runtime/torch_autocast.py:132", since="0.18.2")
def autocast_to_no_float(c: Context) -> Problems:
    """torch_autocast.dtype is a type without autocast: training continues in 32 bits."""
    path = "torch_autocast.dtype"
    value = c.written(path)
    if known_type(value) and DTYPES[value] in ("int8", "fp32") and c.on("torch_autocast.enabled"):
        why = "torch disables autocast with a warning, and trains in 32 bit"
        yield c.problem(path, f"autocast does not work in {value}", why=why, fix=c.put(path, "bfloat16", "write bfloat16"))


@rule("DS069", "error", when="parse", says="Invalid module names for torch autocast", source="runtime/config.py:202", since="0.18.2")
def autocast_modules(c: Context) -> Problems:
    """lower_precision_safe_modules is not a list of class paths."""
    path = "torch_autocast.lower_precision_safe_modules"
    value = c.written(path)
    if value is MISSING:
        return
    if not isinstance(value, (list, str, dict)) or not all(isinstance(name, str) for name in value):
        yield c.problem(
            path, "lower_precision_safe_modules must be a list of class paths", fix=c.drop(path, "remove it: the default is used")
        )
    elif isinstance(value, str) or any("." not in name for name in value):
        message = "lower_precision_safe_modules must hold full class paths, such as torch.nn.Linear"
        if c.on("torch_autocast.enabled") and value:
            yield c.problem(path, message, when="initialize", says="Failed to import", fix=c.drop(path, "remove it: the default is used"))


@rule(
    "DS070",
    "error",
    when="initialize",
    says="Cannot enable both torch autocast and zero quantized weights",
    source="runtime/torch_autocast.py:32",
    since="0.18.2",
)
def autocast_and_quantized_weights(c: Context) -> Problems:
    """Autocast with weights that ZeRO++ gathers quantized."""
    path = "zero_optimization.zero_quantized_weights"
    if c.on("torch_autocast.enabled") and c.on(path):
        yield c.problem(
            path, "zero_quantized_weights cannot be combined with torch_autocast", fix=c.drop(path, "remove zero_quantized_weights")
        )


@rule("DS071", "warning", source="runtime/engine.py:669", since="0.18.2")
def autocast_and_16_bit(c: Context) -> Problems:
    """Autocast on a model that is already in 16 bits."""
    if c.on("torch_autocast.enabled") and model_type(c) != "fp32":
        why = "the model is cast to 16 bit and autocast runs as well; autocast alone keeps 32-bit parameters"
        message = f"torch_autocast and {model_type(c)} are both enabled"
        yield c.problem("torch_autocast.enabled", message, why=why, fix=c.put("torch_autocast.enabled", False, "turn autocast off"))


@rule("DS073", "error", when="parse", says="Invalid communication_data_type", source="runtime/config.py:216-230")
def communication_type(c: Context) -> Problems:
    """A communication type other than fp16, bf16 and fp32."""
    for path in ("communication_data_type", "seq_parallel_communication_data_type", "seq_parallel_comm_data_type"):
        value = c.written(path)
        if value is MISSING or value is None or c.key(path) is None:
            continue
        if not isinstance(value, str):
            yield c.problem(path, f"{path} must be fp16, bf16 or fp32", says="has no attribute 'lower'", fix=_no_type(c, path))
        elif value.lower() not in ("fp16", "bf16", "fp32"):
            yield c.problem(path, f"{path} is {value!r}: fp16, bf16 or fp32", fix=_no_type(c, path))


def _no_type(c: Context, path: str) -> Fix:
    return c.drop(path, f"remove {path}: it follows the model")
