"""Rules about everything around training: activation checkpointing, monitors, the profiler, data efficiency, autotuning, logging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.forms import fit
from dstui.check.rule import Problems, rule
from dstui.plan.catalogue import Key

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "comet": "comet_ml"}
LEVELS = ("debug", "info", "warning", "error", "critical")
SAMPLING = "data_efficiency.data_sampling"
BATCHING = f"{SAMPLING}.dynamic_batching"
CURRICULUM = f"{SAMPLING}.curriculum_learning"
LTD = "data_efficiency.data_routing.random_ltd"
DATA = "runtime/data_pipeline/config.py"


@rule("DS021", "error", when="parse", says="unsupported operand type(s) for |", source="runtime/config.py:533")
def profiler_switch(c: Context) -> Problems:
    """wall_clock_breakdown or flops_profiler.enabled is not a boolean: DeepSpeed combines the two with |."""
    clock, profiler = c.flat.get("wall_clock_breakdown", False), c.section("flops_profiler").get("enabled", False)
    try:
        _ = clock | profiler
    except TypeError:
        for path, value in (("wall_clock_breakdown", clock), ("flops_profiler.enabled", profiler)):
            if not isinstance(value, (bool, int)):
                on = str(value).lower() in ("true", "yes", "on", "1", "1.0")
                yield c.problem(path, f"{path} must be true or false", fix=c.put(path, on, f"write {str(on).lower()}"))


@rule("DS027", "error", when="initialize", says="is not one of the valid logging levels", source="utils/logging.py:188", since="0.19.8")
def log_level(c: Context) -> Problems:
    """log_level is not a logging level."""
    value = c.written("log_level")
    if value not in (MISSING, None) and (not isinstance(value, str) or value.lower() not in LEVELS):
        yield c.problem("log_level", f"log_level is {value!r}: {', '.join(LEVELS)}", fix=c.put("log_level", "info", "write info"))


@rule("DS314", "error", when="run", says="unsupported operand type(s) for %", source="runtime/engine.py:3554")
def steps_per_print(c: Context) -> Problems:
    """steps_per_print is zero or not a number: the first step fails."""
    value = c.written("steps_per_print")
    if value in (MISSING, None) or (isinstance(value, (int, float)) and value):
        return
    says = (
        "integer modulo by zero"
        if value == 0 and not isinstance(value, str)
        else "not all arguments converted"
        if isinstance(value, str)
        else ""
    )
    yield c.problem(
        "steps_per_print", f"steps_per_print is {value!r}: a positive number", says=says, fix=c.put("steps_per_print", 10, "write 10")
    )


@rule("DS251", "info", source="utils/logging.py, runtime/engine.py:585", since="0.19.8")
def silent_steps(c: Context) -> Problems:
    """steps_per_print prints nothing, since the ranks log only warnings."""
    if isinstance(c.written("steps_per_print"), int) and c.written("log_level") in (MISSING, None) and c.integration == "deepspeed":
        message = "steps_per_print prints nothing unless log_level is info"
        yield c.problem("steps_per_print", message, fix=c.put("log_level", "info", "add log_level info"))


@rule("DS241", "warning", says="is not aligned to 8", source="runtime/config.py:719")
def vocabulary(c: Context) -> Problems:
    """A vocabulary that is not a multiple of 8 wastes tensor cores; one that is not a number stops DeepSpeed."""
    path = "vocabulary_size"
    value = c.written(path)
    if value is MISSING or not value:
        return
    try:
        aligned = value % 8 == 0
    except (TypeError, ValueError):
        says = "not all arguments converted" if isinstance(value, str) else "unsupported operand type(s) for %"
        yield c.problem(path, "vocabulary_size must be a number", says=says, severity="error", when="parse", fix=c.drop(path, "remove it"))
        return
    if not aligned and isinstance(value, (int, float)) and abs(value) < 1e15:
        padded = int(-(-value // 8) * 8)
        yield c.problem(path, f"vocabulary_size {value} is not a multiple of 8", fix=c.put(path, padded, f"pad it to {padded}"))


@rule("DS240", "info", says="No module named", source="monitor/utils.py:9-37")
def monitor_package(c: Context) -> Problems:
    """A monitor whose package must be installed."""
    for name, package in PACKAGES.items():
        if c.on(f"{name}.enabled") and c.key(f"{name}.enabled"):
            yield c.problem(f"{name}.enabled", f"{name} needs the package {package} on every rank (csv_monitor needs none)")


ACTIVATION = "activation_checkpointing"


@rule(
    "DS242",
    "warning",
    says="Contiguous Checkpointing is only available with",
    source="runtime/activation_checkpointing/checkpointing.py:1229-1231",
)
def contiguous_checkpoints(c: Context) -> Problems:
    """Contiguous activation checkpoints without partitioning or without their number."""
    section = c.section(ACTIVATION)
    path = f"{ACTIVATION}.contiguous_memory_optimization"
    if not section.get("contiguous_memory_optimization"):
        return
    if not section.get("partition_activations"):
        message = "contiguous_memory_optimization needs partition_activations"
        yield c.problem(path, message, fix=c.drop(path, "remove contiguous_memory_optimization"))
    elif not section.get("number_checkpoints"):
        says = "Must specify the number of layers with contiguous memory checkpointing"
        message = "contiguous_memory_optimization needs number_checkpoints, the number of layers"
        yield c.problem(path, message, says=says, fix=c.drop(path, "remove contiguous_memory_optimization"))


@rule("DS244", "info", source="runtime/activation_checkpointing/checkpointing.py:271")
def partitioned_activations(c: Context) -> Problems:
    """Partitioned activations need model parallelism."""
    if c.section(ACTIVATION).get("partition_activations") is True:
        message = "partition_activations works only with model parallelism (an mpu)"
        yield c.problem(f"{ACTIVATION}.partition_activations", message)


@rule("DS245", "info", source="runtime/activation_checkpointing/config.py")
def activations_of_the_script(c: Context) -> Problems:
    """The section has an effect only if the script uses deepspeed.checkpointing."""
    if c.section(ACTIVATION) and c.integration != "deepspeed":
        message = "activation_checkpointing has no effect here: use gradient_checkpointing of the model or the Trainer"
        yield c.problem(ACTIVATION, message, fix=c.drop(ACTIVATION, "remove activation_checkpointing"))


@rule("DS246", "error", when="parse", says="Curriculum learning is enabled, curriculum_metrics must be specified", source=f"{DATA}:88")
def curriculum(c: Context) -> Problems:
    """A curriculum without metrics."""
    if c.section(CURRICULUM).get("enabled") and "curriculum_metrics" not in c.section(CURRICULUM):
        yield c.problem(
            CURRICULUM, "curriculum_learning needs curriculum_metrics", fix=c.put(f"{CURRICULUM}.enabled", False, "turn it off")
        )


def integer(value: Any) -> bool:
    """Return whether int() accepts the value."""
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


@rule(
    "DS247",
    "error",
    when="parse",
    says="Dynamic batching is enabled, so max_tokens must be specified",
    source=f"{DATA}:108",
    since="0.16.9",
)
def dynamic_batching(c: Context) -> Problems:
    """Dynamic batching without max_tokens, or with sizes that are not numbers."""
    section = c.section(BATCHING)
    if section.get("enabled") and "max_tokens" not in section:
        yield c.problem(BATCHING, "dynamic_batching needs max_tokens", fix=c.put(f"{BATCHING}.enabled", False, "turn it off"))
    for name in ("min_batch_size", "max_batch_size", *(["max_tokens"] if section.get("enabled") else [])):
        if name in section and not integer(section[name]):
            path = f"{BATCHING}.{name}"
            yield c.problem(path, f"{name} must be an integer", says="int()", fix=c.put(path, 1, "write a number"))


@rule("DS248", "error", when="initialize", says="KeyError", source="runtime/data_pipeline/data_routing/scheduler.py:42")
def token_dropping(c: Context) -> Problems:
    """Random token dropping without required values."""
    section = c.section(LTD)
    if section.get("enabled"):
        for name in ("total_layer_num", "random_ltd_layer_num", "random_ltd_schedule"):
            if name not in section:
                fix = c.put(f"{LTD}.enabled", False, "turn random_ltd off")
                yield c.problem(f"{LTD}.{name}", f"random_ltd needs {name}", says=f"'{name}'", fix=fix)
                return


@rule("DS249", "error", when="parse", says="cannot be empty", source="autotuning/config.py:39")
def autotuning_folders(c: Context) -> Problems:
    """A folder of autotuning is empty."""
    for name in ("results_dir", "exps_dir"):
        path = f"autotuning.{name}"
        value = c.written(path)
        if value is not MISSING and not value:
            yield c.problem(
                path, f"{name} is empty", says=f"{name} cannot be empty", fix=c.drop(path, f"remove {name}: the default is used")
            )


@rule("DS315", "warning", source="autotuning/config.py")
def autotuning_deletes(c: Context) -> Problems:
    """Autotuning deletes its folders first."""
    if c.section("autotuning").get("enabled") and c.section("autotuning").get("overwrite", True):
        path = "autotuning.overwrite"
        message = "autotuning deletes autotuning_results and autotuning_exps at the start"
        yield c.problem(path, message, severity="info", fix=c.put(path, False, "keep them"))


REPORTED_ELSEWHERE = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "sequence_parallel_size"),
    *("gradient_clipping", "gradient_allreduce_op", "communication_data_type"),
    *("seq_parallel_communication_data_type", "seq_parallel_comm_data_type", "steps_per_print", "log_level", "wall_clock_breakdown"),
    *("flops_profiler.enabled", "vocabulary_size", "datastates_ckpt", "optimizer.type", "optimizer.params", "scheduler.params"),
)
TOPICS = (
    "aio.",
    "torch_autocast.",
    "data_types.",
    "checkpoint.",
    "expert_parallel.",
    "optimizer.params.",
    "scheduler.params.",
    "pipeline.",
    BATCHING,
)


@rule("DS330", "warning")
def unchecked_value(c: Context) -> Problems:
    """A value of a wrong type that DeepSpeed uses unchecked."""
    for path, value in c.flat.items():
        if isinstance(value, Mapping) or path in REPORTED_ELSEWHERE or path.startswith(TOPICS) or value is None:
            continue
        key = c.key(path)
        if key is None or key.type in ("any", "section", "dict") or _has_model(c, path) or (value == AUTO and c.integration != "deepspeed"):
            continue
        found = fit(value, key)
        wrong_word = bool(key.choices) and key.type == "str" and isinstance(value, str) and value not in key.choices
        if not found.ok or wrong_word or (key.type == "bool" and not isinstance(value, bool)):
            yield from _unchecked(c, key, value)


def _unchecked(c: Context, key: Key, value: Any) -> Iterator[Any]:
    expected = {"bool": "true or false", "int": "an integer", "float": "a number", "str": "a word"}.get(key.type, key.type)
    words = ", ".join(map(str, key.choices)) if key.choices else expected
    message = f"{key.path} is {value!r}: {words}"
    yield c.problem(
        key.path, message, why="DeepSpeed does not check it here", fix=c.drop(key.path, f"remove it: the default is {key.default}")
    )


def _has_model(c: Context, path: str) -> bool:
    parent = c.key(path.rpartition(".")[0])
    return parent is not None and parent.strict
