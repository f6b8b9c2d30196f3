"""Rules about offloading to CPU memory and NVMe, and about asynchronous I/O."""

from __future__ import annotations

from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.plan.catalogue import ZERO_SECTION

OPTIMIZER, PARAM = f"{ZERO_SECTION}.offload_optimizer", f"{ZERO_SECTION}.offload_param"
BOTH = (OPTIMIZER, PARAM)
GIB = 2**30


@rule("DS114", "warning", source="runtime/engine.py:2655-2707")
def parameters_stay(c: Context) -> Problems:
    """offload_param below stage 3: parameters silently stay on the GPU."""
    if c.stage < 3 and c.offload("param") != "none":
        path = PARAM if c.has(PARAM) else f"{ZERO_SECTION}.cpu_offload_param"
        why = "parameters stay on every GPU; only stage 3 splits and moves them"
        yield c.problem(
            path, f"offload_param has no effect at stage {c.stage}", why=why, fix=c.drop(path, "remove offload_param (or use stage 3)")
        )


@rule("DS115", "warning", source="runtime/zero/stage_1_and_2.py:220")
def nvme_becomes_cpu(c: Context) -> Problems:
    """offload_optimizer to NVMe below stage 3: it goes to CPU memory instead."""
    path = f"{OPTIMIZER}.device"
    if c.stage in (1, 2) and c.offload("optimizer") == "nvme":
        why = "DeepSpeed keeps the states in CPU memory at stages 1 and 2, and ignores nvme_path"
        yield c.problem(path, f"at stage {c.stage} nvme means cpu", why=why, fix=c.put(path, "cpu", "write cpu (or use stage 3)"))


@rule("DS096", "error", when="run", says="CPUAdam param is on cuda:0 and must be 'cpu'", source="ops/adam/cpu_adam.py:148")
def offload_without_zero(c: Context) -> Problems:
    """offload_optimizer at stage 0: the optimizer for the CPU gets parameters that are on the GPU."""
    if c.stage == 0 and c.offload("optimizer") != "none":
        path = OPTIMIZER if c.has(OPTIMIZER) else f"{ZERO_SECTION}.cpu_offload"
        fix = c.put(f"{ZERO_SECTION}.stage", 2, "use stage 2")
        if c.cpu_only or not c.optimizer.startswith("adam"):
            yield c.problem(
                path, "offload_optimizer does nothing useful at stage 0", why="ZeRO starts at stage 1", severity="warning", fix=fix
            )
        else:
            yield c.problem(path, "offload_optimizer needs ZeRO stage 1 or more", fix=fix)


@rule(
    "DS116",
    "error",
    when="parse",
    says="Partial offloading only supported for ZeRO Stage 3.",
    source="runtime/zero/config.py:399",
    since="0.16.9",
)
def partial_offload(c: Context) -> Problems:
    """A part of the optimizer is offloaded below stage 3."""
    path = f"{OPTIMIZER}.ratio"
    ratio = c.number(path)
    if c.has(path) and ratio is not None and ratio < 1 and c.stage != 3:
        yield c.problem(path, f"ratio {ratio:g} works at stage 3 only", fix=c.drop(path, "remove ratio: all is offloaded"))


@rule("DS117", "error", when="initialize", says="Hybrid Optimizer Only Supports DeepSpeedCPUAdam", source="runtime/zero/stage3.py:316")
def partial_offload_of_another(c: Context) -> Problems:
    """A part of an optimizer other than Adam is offloaded."""
    path = f"{OPTIMIZER}.ratio"
    ratio = c.number(path)
    own = c.optimizer in ("adam", "adamw") and not c.section("optimizer.params").get("torch_adam")
    if c.stage == 3 and c.has(path) and ratio is not None and ratio < 1 and c.offload("optimizer") != "none" and c.optimizer and not own:
        yield c.problem(
            path, f"ratio works with Adam and AdamW only, not with {c.optimizer}", fix=c.drop(path, "remove ratio: all is offloaded")
        )


@rule("DS119", "warning", source="runtime/zero/offload_config.py:24,58")
def offload_to_nowhere(c: Context) -> Problems:
    """An offload section without a device: nothing is offloaded."""
    for section in BOTH:
        content = c.written(section)
        if isinstance(content, dict) and c.text(f"{section}.device") in ("", "none") and set(content) - {"device"}:
            path = f"{section}.device"
            if c.written(path) == AUTO:
                continue
            fix = (
                c.put(path, "cpu", "offload to the CPU") if not c.has(path) and (c.stage == 3 or section == OPTIMIZER) and c.stage else None
            )
            fix = fix or c.drop(section, f"remove {section.rpartition('.')[2]}")
            yield c.problem(section, f"{section.rpartition('.')[2]} has no device: nothing is offloaded", fix=fix)


@rule("DS120", "warning", source="runtime/engine.py:2749", since="0.18.2")
def super_offload_below_3(c: Context) -> Problems:
    """super_offload below stage 3 is ignored."""
    path = f"{OPTIMIZER}.super_offload"
    if c.on(path) and c.stage < 3:
        yield c.problem(path, f"super_offload has no effect at stage {c.stage}", fix=c.drop(path, "remove super_offload"))


@rule(
    "DS121",
    "error",
    when="initialize",
    says="SuperOffload only supports NVIDIA CUDA GPUs",
    source="runtime/superoffload/superoffload_stage3.py:23",
    since="0.18.2",
)
def super_offload_on_cpu(c: Context) -> Problems:
    """super_offload on ranks without a GPU."""
    path = f"{OPTIMIZER}.super_offload"
    if c.cpu_only and c.stage == 3 and c.on(path) and c.offload("optimizer") != "none":
        yield c.problem(path, "super_offload needs NVIDIA GPUs", fix=c.drop(path, "remove super_offload"))


@rule("DS122", "info", source="runtime/zero/stage_1_and_2.py:300")
def contiguous_with_offload(c: Context) -> Problems:
    """contiguous_gradients is off, but CPU offload turns it on."""
    path = f"{ZERO_SECTION}.contiguous_gradients"
    if c.stage in (1, 2) and c.offload("optimizer") != "none" and c.has(path) and not c.on(path):
        yield c.problem(
            path, "contiguous_gradients is on whenever the optimizer is offloaded", fix=c.drop(path, "remove contiguous_gradients")
        )


@rule(
    "DS141", "error", when="initialize", says="expected str, bytes or os.PathLike object, not NoneType", source="runtime/zero/stage3.py:840"
)
def nvme_without_a_path(c: Context) -> Problems:
    """Offload to NVMe without a path."""
    for section in BOTH:
        path = f"{section}.nvme_path"
        what = section.rpartition("_")[2]
        if c.stage == 3 and c.offload(what) == "nvme" and not c.value(path):
            says = '"nvme_path" in DeepSpeed Config cannot be None if remote device is' if section == PARAM else ""
            fix = c.put(path, "/local_nvme", "write a folder on the NVMe drive (/local_nvme)")
            yield c.problem(path, f"offload_{what} to nvme needs nvme_path, a folder on the drive", says=says, fix=fix)


@rule("DS144", "error", when="initialize", says="Unable to JIT load the async_io op", source="ops/op_builder/builder.py:570")
def nvme_without_libaio(c: Context) -> Problems:
    """Offload to NVMe on a machine without libaio's headers, which the op is compiled with."""
    software = c.machine.software if c.machine else None
    if c.stage == 3 and software is not None and software.libaio_headers is False:
        for section in BOTH:
            if c.offload(section.rpartition("_")[2]) == "nvme":
                fix = c.put(f"{section}.device", "cpu", "offload to the CPU, or install libaio-dev (libaio-devel)")
                yield c.problem(f"{section}.device", "NVMe offload is compiled with libaio, which is missing here", fix=fix)


@rule("DS145", "info", source="runtime/swap_tensor/partitioned_param_swapper.py:88")
def nvme_folder_is_emptied(c: Context) -> Problems:
    """The folder on the NVMe drive is emptied at the start, so two jobs must not share it."""
    path = f"{PARAM}.nvme_path"
    if c.stage == 3 and c.offload("param") == "nvme" and c.value(path):
        yield c.problem(path, f"DeepSpeed empties {c.value(path)}/zero_stage_3 at the start: one job, one folder")


@rule("DS146", "warning", source="runtime/swap_tensor/partitioned_param_swapper.py:124")
def nvme_buffers(c: Context) -> Problems:
    """The pinned buffers of parameter offload take a large part of the RAM."""
    memory = c.machine.host.memory if c.machine else None
    if c.stage != 3 or c.offload("param") != "nvme" or not isinstance(memory, int):
        return
    count, size = c.number(f"{PARAM}.buffer_count") or 0, c.number(f"{PARAM}.buffer_size") or 0
    local = min(c.world_size or 1, max(1, len(c.gpus)))
    needed = count * size * 2 * local
    if needed > memory / 2:
        path = f"{PARAM}.buffer_size"
        small = int(memory / 8 / (count * 2 * local)) if count else 0
        message = f"buffers of {needed / GIB:.0f} GiB for {local} ranks, on a host with {memory / GIB:.0f} GiB"
        yield c.problem(path, message, fix=c.put(path, max(small, 1_000_000), f"make buffer_size {max(small, 1_000_000)}"))


@rule("DS153", "warning", source="ops/csrc/pin_memory/page_alloc.cpp:24-28")
def pinned_memory_limit(c: Context) -> Problems:
    """Pinned memory on a machine with a low limit for it."""
    memlock = c.machine.host.memlock if c.machine else None
    if not isinstance(memlock, int) or memlock > GIB:
        return
    for section in BOTH:
        path = f"{section}.pin_memory"
        if c.stage and c.offload(section.rpartition("_")[2]) != "none" and c.on(path) and (section == OPTIMIZER or c.stage == 3):
            message = f"pin_memory, but a process may lock only {memlock / 2**20:.0f} MiB here (ulimit -l)"
            yield c.problem(path, message, fix=c.put(path, False, "turn pin_memory off, or raise ulimit -l"))


@rule(
    "DS149",
    "error",
    when="parse",
    says="GDS currently only supported for CUDA accelerator",
    source="runtime/swap_tensor/aio_config.py:39",
    since="0.16.9",
)
def gpu_direct_on_cpu(c: Context) -> Problems:
    """GPUDirect Storage on ranks without a GPU."""
    if c.cpu_only and c.section("aio").get("use_gds"):
        yield c.problem("aio.use_gds", "use_gds needs NVIDIA GPUs", fix=c.drop("aio.use_gds", "remove use_gds"))


def uses_aio(c: Context) -> bool:
    """Return whether anything is offloaded to NVMe."""
    return c.stage == 3 and "nvme" in (c.offload("optimizer"), c.offload("param"))


@rule(
    "DS150",
    "error",
    when="initialize",
    says="integer modulo by zero",
    source="runtime/swap_tensor/optimizer_utils.py:181-185",
    since="0.16.9",
)
def no_threads(c: Context) -> Problems:
    """No thread for asynchronous I/O."""
    path = "aio.intra_op_parallelism"
    if c.written(path) == 0 and uses_aio(c):
        yield c.problem(path, "intra_op_parallelism is 0", fix=c.put(path, 1, "write 1"))


@rule("DS151", "error", when="initialize", says="incompatible constructor arguments", source="nvme/perf_generate_param.py:41-50")
def aio_in_words(c: Context) -> Problems:
    """Strings where asynchronous I/O needs true, false or a number, as ds_nvme_tune prints them."""
    for name, value in c.section("aio").items():
        key = c.key(f"aio.{name}")
        if key is None or not isinstance(value, str):
            continue
        words = {"true": True, "false": False}
        new = words.get(value.lower(), int(value) if value.isdecimal() else key.default)
        severity = None if uses_aio(c) else "warning"
        message = f"{name} is the string {value!r}"
        yield c.problem(key.path, message, severity=severity, fix=c.put(key.path, new, f"write {str(new).lower()}"))


@rule("DS152", "warning", source="runtime/swap_tensor/aio_config.py:20-43")
def aio_sizes(c: Context) -> Problems:
    """An invalid block size or queue depth."""
    for name, least in (("block_size", 4096), ("queue_depth", 1)):
        path = f"aio.{name}"
        value = c.written(path)
        if value is not MISSING and isinstance(value, (int, float)) and not isinstance(value, bool) and value < least:
            default = {"block_size": 1_048_576, "queue_depth": 8}[name]
            yield c.problem(path, f"{name} {value:g} is less than {least}", fix=c.put(path, default, f"write {default}"))
