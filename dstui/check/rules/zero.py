"""Rules about ZeRO: what is possible at which stage, and how gradients are reduced."""

from __future__ import annotations

from dstui.base.text import counted
from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.precision import DTYPES, known_type, model_type
from dstui.plan.catalogue import ZERO_SECTION

STAGE_1_AND_2 = "runtime/zero/stage_1_and_2.py"
STAGE_3 = "runtime/zero/stage3.py"


@rule("DS043", "warning", says="this format of ZeRO optimization setup is deprecated", source="runtime/zero/config.py:65")
def zero_as_a_switch(c: Context) -> Problems:
    """zero_optimization is true or false: an old form of stage 1 or 0."""
    value = c.written(ZERO_SECTION)
    if isinstance(value, bool):
        fix = c.put(ZERO_SECTION, {"stage": int(value)}, f"write it as a section with stage {int(value)}")
        yield c.problem(ZERO_SECTION, f"zero_optimization: {str(value).lower()} is the old form of stage {int(value)}", fix=fix)


@rule(
    "DS048",
    "error",
    when="initialize",
    says="The deprecated version of ZeRO Stage 1 is not supported",
    source="runtime/engine.py:2650-2653",
)
def legacy_stage_1(c: Context) -> Problems:
    """The implementation of stage 1 from before 0.5.9."""
    path = f"{ZERO_SECTION}.legacy_stage1"
    if c.on(path) and c.stage > 0:
        yield c.problem(path, "legacy_stage1 was removed long ago", fix=c.drop(path, "remove legacy_stage1"))


@rule("DS049", "warning", says="ZeRO-3 elastic checkpointing is deprecated", source="runtime/zero/config.py:404")
def elastic_checkpoint(c: Context) -> Problems:
    """elastic_checkpoint at stage 3 does nothing."""
    path = f"{ZERO_SECTION}.elastic_checkpoint"
    if c.stage == 3 and c.on(path):
        yield c.problem(path, "elastic_checkpoint has no effect at stage 3", fix=c.drop(path, "remove it; use universal checkpoints"))


@rule("DS100", "error", when="initialize", says="is not yet supported with ZeRO-", source=f"{STAGE_1_AND_2}:350, {STAGE_3}:395")
def predivided_gradients(c: Context) -> Problems:
    """Gradients divided before a reduce-scatter, which divides them itself."""
    if c.stage not in (2, 3) or not c.on(f"{ZERO_SECTION}.reduce_scatter"):
        return
    factor = c.written("gradient_predivide_factor")
    if isinstance(factor, (int, float)) and factor != 1 and _averaged(c):
        says = f"gradient_predivide_factor != 1.0 is not yet supported with ZeRO-{c.stage} with reduce scatter enabled"
        fix = c.drop("gradient_predivide_factor", "remove gradient_predivide_factor")
        yield c.problem("gradient_predivide_factor", f"gradient_predivide_factor must be 1 at stage {c.stage}", says=says, fix=fix)
    if c.written("prescale_gradients") is True:
        says = f"pre-scale gradients is not yet supported with ZeRO-{c.stage} with reduce scatter enabled"
        fix = c.drop("prescale_gradients", "remove prescale_gradients")
        yield c.problem("prescale_gradients", f"prescale_gradients cannot be combined with stage {c.stage}", says=says, fix=fix)


def _averaged(c: Context) -> bool:
    return str(c.value("gradient_allreduce_op") or "mean").lower() != "sum" or c.stage == 3


@rule("DS104", "error", when="initialize", says="allgather_bucket_size must be a multiple of", source=f"{STAGE_1_AND_2}:389")
def odd_bucket(c: Context) -> Problems:
    """allgather_bucket_size is odd."""
    path = f"{ZERO_SECTION}.allgather_bucket_size"
    size = c.number(path)
    if c.stage in (1, 2) and size is not None and size % 2:
        yield c.problem(path, f"allgather_bucket_size {size:g} is odd", fix=c.put(path, int(size) + 1, f"write {int(size) + 1}"))


@rule(
    "DS106",
    "error",
    when="parse",
    says="compute_grad_norm=false is supported only with",
    source="runtime/zero/config.py:391",
    since="0.19.8",
)
def gradient_norm_and_stage(c: Context) -> Problems:
    """compute_grad_norm is off at another stage than 1 or 2."""
    path = f"{ZERO_SECTION}.compute_grad_norm"
    if c.has(path) and not c.on(path) and c.stage not in (1, 2):
        yield c.problem(path, "compute_grad_norm can be false only at stage 1 or 2", fix=c.drop(path, "remove compute_grad_norm"))


@rule(
    "DS107", "error", when="initialize", says="zero_optimization.compute_grad_norm=false", source=f"{STAGE_1_AND_2}:213-218", since="0.19.8"
)
def gradient_norm_is_needed(c: Context) -> Problems:
    """compute_grad_norm is off, but clipping, offload, ZenFlow or the BF16_Optimizer need the norm."""
    path = f"{ZERO_SECTION}.compute_grad_norm"
    if not c.has(path) or c.on(path) or c.stage not in (1, 2):
        return
    clip = c.written("gradient_clipping")
    fix = c.drop(path, "compute the norm")
    accumulate = c.written("data_types.grad_accum_dtype")
    if c.offload("optimizer") != "none":
        says = "zero_optimization.compute_grad_norm=false does not support optimizer offload"
        yield c.problem(path, "compute_grad_norm false cannot be combined with offload_optimizer", says=says, fix=fix)
    elif c.section(f"{ZERO_SECTION}.zenflow") or c.has(f"{ZERO_SECTION}.zenflow"):
        yield c.problem(path, "compute_grad_norm false cannot be combined with zenflow", says="does not support ZenFlow", fix=fix)
    elif c.stage == 1 and model_type(c) == "bf16" and known_type(accumulate) and DTYPES[accumulate] == "fp32":
        says = "zero_optimization.compute_grad_norm=false does not support ZeRO Stage 1 with BF16 parameters"
        yield c.problem(
            path, "compute_grad_norm false cannot be combined with fp32 gradients of a bf16 model at stage 1", says=says, fix=fix
        )
    elif clip is MISSING or (isinstance(clip, (int, float)) and clip > 0):
        says = "zero_optimization.compute_grad_norm=false requires gradient_clipping=0"
        message = "compute_grad_norm false needs gradient_clipping 0" + (" (left out, it is 1.0)" if clip is MISSING else "")
        yield c.problem(path, message, says=says, fix=c.put("gradient_clipping", 0, "write gradient_clipping 0"))


@rule("DS111", "info", source="runtime/constants.py:203", since="0.19.8", readers=("deepspeed",))
def clipping_by_default(c: Context) -> Problems:
    """gradient_clipping is left out: 0.19 clips at 1.0, older releases did not."""
    if c.trained and not c.has("gradient_clipping"):
        fix = c.put("gradient_clipping", 1.0, "set gradient_clipping 1.0 explicitly (0 never clips)")
        yield c.problem("gradient_clipping", "gradients are clipped at 1.0, as gradient_clipping is left out", fix=fix)


@rule("DS112", "error", when="parse", says="Invalid gradient_allreduce_op", source="runtime/config.py:246", since="0.19.8")
def reduction(c: Context) -> Problems:
    """gradient_allreduce_op is neither mean nor sum."""
    path = "gradient_allreduce_op"
    value = c.written(path)
    if value is not MISSING and (not isinstance(value, str) or value.lower() not in ("mean", "sum")):
        yield c.problem(path, f"gradient_allreduce_op is {value!r}: mean or sum", fix=c.put(path, "mean", "write mean"))


@rule(
    "DS113",
    "error",
    when="parse",
    says="gradient_allreduce_op='sum' is not supported with",
    source="runtime/config.py:694-700",
    since="0.19.8",
)
def summed_gradients(c: Context) -> Problems:
    """Gradients are summed where that does not work."""
    path = "gradient_allreduce_op"
    value = c.written(path)
    if not isinstance(value, str) or value.lower() != "sum":
        return
    zenflow = c.has(f"{ZERO_SECTION}.zenflow") and c.written(f"{ZERO_SECTION}.zenflow") not in (None, AUTO)
    where = "ZeRO stage 3" if c.stage == 3 else "ZenFlow" if zenflow else "DeepCompile" if c.on("compile.deepcompile") else ""
    if where:
        says = f"gradient_allreduce_op='sum' is not supported with {where}"
        yield c.problem(path, f"gradients cannot be summed with {where}", says=says, fix=c.put(path, "mean", "write mean"))


@rule("DS123", "warning", source="runtime/engine.py:2655-2795")
def other_stage(c: Context) -> Problems:
    """A key of another ZeRO stage: it has no effect at this one."""
    for name, value in c.section(ZERO_SECTION).items():
        key = c.key(f"{ZERO_SECTION}.{name}")
        if key is None or not key.stages or c.stage in key.stages or name in REPORTED_ELSEWHERE or value in (AUTO, False, None):
            continue
        if name == "stage" or value == key.default or isinstance(value, dict):
            continue
        stages = ", ".join(map(str, key.stages[:-1])) + (" or " if key.stages[1:] else "") + str(key.stages[-1])
        harmless = "bucket" in name or name.startswith("stage3_") or name in ("contiguous_gradients", "reduce_scatter", "overlap_comm")
        message = f"{name} has no effect at stage {c.stage}: it belongs to stage {stages}"
        yield c.problem(key.path, message, severity="info" if harmless else None, fix=c.drop(key.path, f"remove {name}"))


REPORTED_ELSEWHERE = (
    "offload_param",
    "offload_optimizer",
    "zenflow",
    "legacy_stage1",
    "elastic_checkpoint",
    "compute_grad_norm",
    "cpu_offload",
)


@rule("DS125", "error", when="initialize", says="is not divisible by", source="utils/groups.py:945")
def hpz_and_ranks(c: Context) -> Problems:
    """zero_hpz_partition_size does not divide the ranks."""
    path = f"{ZERO_SECTION}.zero_hpz_partition_size"
    size, ranks = c.number(path), c.world_size
    if c.stage != 3 or size is None or size <= 1 or ranks is None:
        return
    if size > ranks:
        why = "DeepSpeed reduces it to the number of ranks: one copy of the weights in all"
        message = f"zero_hpz_partition_size {size:g} is more than {counted(ranks, 'rank')}"
        yield c.problem(path, message, why=why, severity="warning", fix=c.put(path, ranks, f"write {ranks}"))
    elif ranks % size:
        best = next(n for n in range(int(size), 0, -1) if ranks % n == 0)
        says = f"{ranks} is not divisible by {size:g}"
        yield c.problem(path, f"{ranks} ranks cannot be split into groups of {size:g}", says=says, fix=c.put(path, best, f"write {best}"))


@rule("DS132", "warning", source="utils/groups.py (_create_zero_param_parallel_group)")
def hpz_and_hosts(c: Context) -> Problems:
    """zero_hpz_partition_size is not the number of GPUs of a host."""
    path, hosts = f"{ZERO_SECTION}.zero_hpz_partition_size", c.hosts
    size = c.number(path)
    if c.stage != 3 or size is None or size <= 1 or not hosts or len(hosts) < 2 or len(set(hosts.values())) > 1:
        return
    slots = next(iter(hosts.values()))
    if size != slots:
        why = "each group keeps a copy of the weights: with groups of one host, gathers stay on the host"
        message = f"zero_hpz_partition_size is {size:g}, but each host has {slots} GPUs"
        yield c.problem(path, message, why=why, fix=c.put(path, slots, f"write {slots}"))


@rule(
    "DS127",
    "error",
    when="initialize",
    says="This op had not been implemented on CPU backend.",
    source="runtime/zero/partition_parameters.py:865",
)
def quantized_weights_on_cpu(c: Context) -> Problems:
    """ZeRO++ quantized weights on ranks without a GPU."""
    for name in ("zero_quantized_weights", "zero_quantized_nontrainable_weights"):
        path = f"{ZERO_SECTION}.{name}"
        if c.cpu_only and c.stage == 3 and c.on(path):
            yield c.problem(path, f"{name} needs GPUs", fix=c.drop(path, f"remove {name}"))


@rule(
    "DS130",
    "error",
    when="initialize",
    says="when enable all_to_all_reduce, reduce_scatter should also be enabled",
    source=f"{STAGE_3}:390",
)
def quantized_gradients_without_scatter(c: Context) -> Problems:
    """ZeRO++ quantized gradients without reduce_scatter."""
    path = f"{ZERO_SECTION}.reduce_scatter"
    if c.stage == 3 and c.on(f"{ZERO_SECTION}.zero_quantized_gradients") and not c.on(path):
        yield c.problem(path, "zero_quantized_gradients needs reduce_scatter", fix=c.put(path, True, "turn reduce_scatter on"))


@rule("DS131", "warning", source=f"{STAGE_3}:1928")
def quantized_gradients_on_one_host(c: Context) -> Problems:
    """ZeRO++ quantized gradients on a single host: nothing is quantized."""
    path = f"{ZERO_SECTION}.zero_quantized_gradients"
    hosts = c.hosts
    if c.stage == 3 and c.on(path) and hosts is not None and len(hosts) == 1:
        yield c.problem(path, "zero_quantized_gradients does nothing on one host", fix=c.drop(path, "remove zero_quantized_gradients"))


@rule("DS134", "warning", source="runtime/zero/parameter_offload.py")
def granularity(c: Context) -> Problems:
    """A module granularity so coarse that the whole model may become one unit."""
    path = f"{ZERO_SECTION}.stage3_module_granularity_threshold"
    size = c.number(path)
    if c.stage == 3 and size is not None and size > 0:
        why = "where the whole model becomes one unit, the first step fails with a shape that does not match"
        yield c.problem(
            path,
            f"stage3_module_granularity_threshold {size:g} may treat the whole model as one unit",
            why=why,
            fix=c.drop(path, "remove it"),
        )


@rule("DS136", "error", when="initialize", says="managed_gradient_accumulation=False", source="runtime/engine.py:2031-2036", since="0.19.8")
def script_accumulates(c: Context) -> Problems:
    """The script decides when to step, with something that needs DeepSpeed to decide."""
    path = "managed_gradient_accumulation"
    if c.written(path) in (MISSING, True) or c.on(path):
        return
    if c.stage == 1 and c.on(f"{ZERO_SECTION}.overlap_comm"):
        says = "managed_gradient_accumulation=False supports ZeRO overlap_comm only with ZeRO stage 2"
        fix = c.put(f"{ZERO_SECTION}.overlap_comm", False, "turn overlap_comm off")
        yield c.problem(path, "managed_gradient_accumulation false cannot be combined with overlap_comm at stage 1", says=says, fix=fix)
    if c.on("compile.deepcompile"):
        says = "managed_gradient_accumulation=False is not supported with DeepCompile"
        yield c.problem(
            path, "managed_gradient_accumulation false cannot be combined with DeepCompile", says=says, fix=c.drop(path, f"remove {path}")
        )


@rule("DS139", "info", source="runtime/engine.py:1745")
def never_used(c: Context) -> Problems:
    """A key that DeepSpeed reads and never uses."""
    for path in ("disable_allgather", f"{ZERO_SECTION}.allgather_partitions"):
        key = c.key(path)
        if key and c.has(path) and c.written(path) != key.default:
            yield c.problem(path, f"{key.name} is read but never used", fix=c.drop(path, f"remove {key.name}"))


GIB = 2**30


@rule("DS140", "warning", source="runtime/zero/config.py:113,132")
def buckets_on_a_small_gpu(c: Context) -> Problems:
    """Buckets that take a large part of a small GPU."""
    memory = min((gpu.memory_total for gpu in c.gpus if isinstance(gpu.memory_total, int)), default=None)
    if memory is None or c.stage not in (1, 2):
        return
    width = 4 if model_type(c) == "fp32" else 2
    path = f"{ZERO_SECTION}.reduce_bucket_size"
    sizes = [c.number(path) or 0, c.number(f"{ZERO_SECTION}.allgather_bucket_size") or 0]
    needed = sum(sizes) * width * (2 if c.on(f"{ZERO_SECTION}.overlap_comm") else 1)
    if needed > memory / 8:
        why = "the buckets of 5e8 elements are made for large GPUs"
        fix = c.steps("make both buckets 5e7", c.put(path, 50_000_000, ""), c.put(f"{ZERO_SECTION}.allgather_bucket_size", 50_000_000, ""))
        if ZERO_SECTION not in c.raw or not isinstance(c.raw[ZERO_SECTION], dict):
            fix = c.put(path, 50_000_000, "make the bucket 5e7")
        message = f"the buckets take {needed / GIB:.1f} of {memory / GIB:.0f} GiB"
        yield c.problem(path, message, why=why, fix=fix)
