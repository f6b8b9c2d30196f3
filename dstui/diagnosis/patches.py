"""Fixes that edit the Plan: each returns a JSON Patch, or None if there is nothing to change.

They change as little as the failure requires, so that one key applies them and a second run shows whether they helped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dstui.diagnosis.signature import PatchMaker, Remedy
from dstui.machine.slurm_offers import format_time, seconds_of
from dstui.plan.finding import Operation
from dstui.plan.handed_over import CONFIG, CONFIG_OPTIONS

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

Patch = list[Operation] | None
TRAINER_KEYS = tuple(
    f"deepspeed.{key}"
    for key in (
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "optimizer.params.lr", "optimizer.params.betas", "optimizer.params.eps", "optimizer.params.weight_decay",
        "scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr", "scheduler.params.warmup_num_steps",
        "scheduler.params.total_num_steps",
    )
)  # fmt: skip
"""Values that transformers compares with TrainingArguments (transformers/integrations/deepspeed.py:trainer_config_process)."""


def put(plan: Plan, path: str, value: Any) -> Patch:
    """Return the patch that writes a value at a dotted path, creating missing parents; None if the Plan has the value already."""
    missing = object()
    if plan.get(path, missing) == value:
        return None
    parts = path.split(".")
    for depth in range(1, len(parts) + 1):
        at = plan.get(".".join(parts[:depth]), missing)
        if at is missing or at is None or (depth < len(parts) and not isinstance(at, Mapping)):
            nested: Any = value
            for part in reversed(parts[depth:]):
                nested = {part: nested}
            return [{"op": "add" if at is missing else "replace", "path": _pointer(parts[:depth]), "value": nested}]
    return [{"op": "replace", "path": _pointer(parts), "value": value}]


def drop(plan: Plan, path: str) -> Patch:
    """Return the patch that removes a key; None if it is missing."""
    missing = object()
    return None if plan.get(path, missing) is missing else [{"op": "remove", "path": _pointer(path.split("."))}]


def setting(path: str, value: Any) -> PatchMaker:
    """Return a fix that sets one value."""
    return lambda plan: put(plan, path, value)


def without(*paths: str) -> PatchMaker:
    """Return a fix that removes keys."""

    def patch(plan: Plan) -> Patch:
        return [operation for path in paths for operation in drop(plan, path) or ()] or None

    return patch


def append(plan: Plan, path: str, word: str) -> Patch:
    """Return the patch that adds a word to a list; None if the list contains it."""
    words = plan.get(path) or []
    return None if word in words else put(plan, path, [*words, word])


def next_stage(plan: Plan) -> Patch:
    """Increase the ZeRO stage by one: 2 shards the gradients, 3 the parameters."""
    stage = plan.get("deepspeed.zero_optimization.stage", 0)
    return put(plan, "deepspeed.zero_optimization.stage", 2 if stage < 2 else 3) if isinstance(stage, int) and stage < 3 else None


def offload_optimizer(plan: Plan) -> Patch:
    """Move the optimizer states to host memory, if ZeRO shards them at all."""
    stage = plan.get("deepspeed.zero_optimization.stage", 0)
    path = "deepspeed.zero_optimization.offload_optimizer"
    if not isinstance(stage, int) or stage < 1 or plan.get(f"{path}.device") in ("cpu", "nvme"):
        return None
    return put(plan, path, {"device": "cpu", "pin_memory": True})


def halve_micro_batch(plan: Plan) -> Patch:
    """Halve the micro-batch and double the accumulation: the same global batch with half of the activations."""
    micro, steps = "deepspeed.train_micro_batch_size_per_gpu", "deepspeed.gradient_accumulation_steps"
    size, accumulated = plan.get(micro), plan.get(steps, 1)
    if not isinstance(size, int) or not isinstance(accumulated, int) or size < 2 or size % 2:
        return None
    return [*(put(plan, micro, int(size // 2)) or ()), *(put(plan, steps, int(accumulated * 2)) or ())]


def batch_from_micro(plan: Plan) -> Patch:
    """Remove the global batch size: DeepSpeed computes it from the other two, for any world size."""
    if plan.get("deepspeed.train_micro_batch_size_per_gpu") is None:
        return drop(plan, "deepspeed.gradient_accumulation_steps")
    return drop(plan, "deepspeed.train_batch_size")


def no_auto(plan: Plan) -> Patch:
    """Replace "auto", which only some programs fill in: remove keys that have a default in DeepSpeed, set the micro-batch to 1."""
    found: list[Operation] = []
    for path in _autos(plan.get("deepspeed") or {}, "deepspeed"):
        found += (put(plan, path, 1) if path == "deepspeed.train_micro_batch_size_per_gpu" else drop(plan, path)) or ()
    return found or None


def trainer_values(plan: Plan) -> Patch:
    """Write "auto" for every value that the Trainer knows from its own arguments; None if none is set."""
    written = [path for path in TRAINER_KEYS if plan.get(path, "auto") != "auto"]
    return [operation for path in written for operation in put(plan, path, "auto") or ()] or None


def to_fp16(plan: Plan) -> Patch:
    """Replace bf16 by fp16."""
    return _both(drop(plan, "deepspeed.bf16"), put(plan, "deepspeed.fp16.enabled", True))


def to_bf16(plan: Plan) -> Patch:
    """Replace fp16 by bf16, which has the range of fp32 and needs no loss scale."""
    return _both(drop(plan, "deepspeed.fp16"), put(plan, "deepspeed.bf16.enabled", True))


def unpin(plan: Plan) -> Patch:
    """Offload to ordinary instead of pinned memory."""
    found: list[Operation] = []
    for part in ("offload_optimizer", "offload_param"):
        path = f"deepspeed.zero_optimization.{part}"
        if plan.get(path) is not None:
            found += put(plan, f"{path}.pin_memory", False) or ()
    return found or None


def nvme_to_cpu(plan: Plan) -> Patch:
    """Offload to host memory instead of NVMe."""
    found: list[Operation] = []
    for part in ("offload_optimizer", "offload_param"):
        path = f"deepspeed.zero_optimization.{part}.device"
        if plan.get(path) == "nvme":
            found += put(plan, path, "cpu") or ()
    return found or None


def torch_adam(plan: Plan) -> Patch:
    """Use PyTorch's own Adam, which needs no compiler. With offload only DeepSpeed's is fast."""
    kind = str(plan.get("deepspeed.optimizer.type", "")).lower()
    return put(plan, "deepspeed.optimizer.params.torch_adam", True) if kind in ("adam", "adamw") else None


def allowed_stage(plan: Plan) -> Patch:
    """Limit the ZeRO stage to 0 to 3."""
    stage = plan.get("deepspeed.zero_optimization.stage")
    return put(plan, "deepspeed.zero_optimization.stage", 3) if stage not in (None, 0, 1, 2, 3) else None


def stage_for_master_weights(plan: Plan) -> Patch:
    """Enable a ZeRO stage, which master weights in bf16 or fp16 require."""
    stage = plan.get("deepspeed.zero_optimization.stage", 0)
    return put(plan, "deepspeed.zero_optimization.stage", 1) if stage == 0 else None


def known_scheduler(plan: Plan) -> Patch:
    """Use DeepSpeed's scheduler that a common other name refers to."""
    path = "deepspeed.scheduler.type"
    name = str(plan.get(path, "")).lower()
    for words, known in (("cosine", "WarmupCosineLR"), ("linear", "WarmupDecayLR"), ("constant", "WarmupLR"), ("cycle", "OneCycle")):
        if words in name:
            return put(plan, path, known)
    return None


def wider_range(plan: Plan) -> Patch:
    """Train in bf16 where the Plan trains in fp16."""
    return to_bf16(plan) if plan.get("deepspeed.fp16.enabled") is True else None


def clip_gradients(plan: Plan) -> Patch:
    """Clip the norm of the gradients at 1, DeepSpeed's default, if the Plan switches it off."""
    return put(plan, "deepspeed.gradient_clipping", 1.0) if plan.get("deepspeed.gradient_clipping") == 0 else None


def whole_parameters(plan: Plan) -> Patch:
    """Reduce the ZeRO stage from 3 to 2, and stop offloading the parameters, which needs stage 3."""
    if plan.get("deepspeed.zero_optimization.stage") != 3:
        return None
    return _both(put(plan, "deepspeed.zero_optimization.stage", 2), drop(plan, "deepspeed.zero_optimization.offload_param"))


def no_prefetch(plan: Plan) -> Patch:
    """Gather each parameter only when it is needed under ZeRO 3."""
    path = "deepspeed.zero_optimization.stage3_prefetch_bucket_size"
    return put(plan, path, 0) if plan.get("deepspeed.zero_optimization.stage") == 3 else None


def known_micro_batch(plan: Plan) -> Patch:
    """Set the micro-batch to 1 if it is missing or "auto"."""
    path = "deepspeed.train_micro_batch_size_per_gpu"
    return put(plan, path, 1) if plan.get(path, "auto") == "auto" else None


def own_configuration(plan: Plan) -> Patch:
    """Give the script the ds_config.json that dstui renders instead of the file named in its arguments."""
    args = list(plan.get("job.args") or ())
    for at, word in enumerate(args):
        name, equals, _ = str(word).partition("=")
        if name.replace("-config", "_config") not in CONFIG_OPTIONS or CONFIG in str(word):
            continue
        if equals:
            return put(plan, "job.args", [*args[:at], f"{name}={CONFIG}", *args[at + 1 :]])
        if at + 1 < len(args) and str(args[at + 1]).endswith(".json"):
            return put(plan, "job.args", [*args[: at + 1], CONFIG, *args[at + 2 :]])
    return None


def job_script_line(line: str) -> PatchMaker:
    """Return a fix that adds a line to the SLURM script, before the ranks are started, if the Plan has one."""
    return lambda plan: append(plan, "cluster.slurm.setup", line) if plan.get("cluster.slurm") else None


def all_memory(plan: Plan) -> Patch:
    """Ask SLURM for all memory of each node, if the Plan has a SLURM script."""
    return put(plan, "cluster.slurm.mem", "0") if plan.get("cluster.slurm") else None


def longer_time(plan: Plan) -> Patch:
    """Double the time limit of the SLURM script."""
    limit = seconds_of(str(plan.get("cluster.slurm.time") or ""))
    return put(plan, "cluster.slurm.time", format_time(2 * limit)) if limit else None


def requeue(plan: Plan) -> Patch:
    """Let SLURM start a preempted job again, if the Plan has a SLURM script."""
    return append(plan, "cluster.slurm.extra", "--requeue") if plan.get("cluster.slurm") else None


def free_port(plan: Plan) -> Patch:
    """Remove a fixed port, so that each start searches for a free one."""
    return drop(plan, "cluster.master_port")


def environment(name: str, value: str) -> PatchMaker:
    """Return a fix that sets one variable for every rank on every host."""
    return setting(f"cluster.env.{name}", value)


LONGER_TIMEOUT = Remedy("Wait an hour for the others, where DeepSpeed creates the process group", environment("DEEPSPEED_TIMEOUT", "60"))
"""Minutes; deepspeed/constants.py:default_pg_timeout."""
WHOLE_PARAMETERS = Remedy("Use ZeRO 2, which keeps parameters whole, if the model fits", whole_parameters)


def _both(*patches: Patch) -> Patch:
    return [operation for patch in patches for operation in patch or ()] or None


def _autos(value: Any, path: str) -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _autos(below, f"{path}.{key}")
    elif value == "auto":
        yield path


def _pointer(parts: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
