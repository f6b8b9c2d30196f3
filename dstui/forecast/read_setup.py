"""Read a setup from a Plan's configuration, as DeepSpeed and the integration would read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from dstui.check.auto_values import AUTO, value_of
from dstui.check.context import Context
from dstui.check.rules.batch import evaluate_batch, written_batch
from dstui.forecast.not_reckoned import not_reckoned
from dstui.forecast.setup import LOSS_BYTES, Attention, Place, Precision, Setup
from dstui.plan import Plan
from dstui.plan.catalogue import ZERO_SECTION, release, version_tuple
from dstui.plan.model import Model

HELD_LOSS_BYTES, OLD_LOSS_BYTES = 14.0, 14.0
"""LOSS_BYTES in a loop of the script's own, which still holds the outputs: measured with transformers' loss in 16 bits
(14.0 on an RTX 4080, by the slope of three lengths in blind_rows_4.csv). Before 4.49 it copied the logits to shift them: 2 in 16 bits,
then 4 for each of logits, copy and softmax."""
SWIFT_LOSS_BYTES = 18.0
"""The same in ms-swift, which computes the loss of each token and the accuracy beside the model's own: five of its scripts with packed
samples (tests/long/blind_rows_2.csv) took 17 to 19, those of its first releases 22."""
PREFERENCE_LOSS_BYTES = 9.5
"""The same for losses of preferences (DPO), which take the log-probabilities in 16 bits: measured with TRL's selective_log_softmax."""
MEGATRON_LOSS_BYTES = 10.0
"""The same in Megatron: logits in 16 bits, in 32 bits, and less their maximum, which becomes the softmax (mpu/cross_entropy.py)."""
NEW_LOSS, FUSED_EXPERTS = (4, 49), (5,)
"""Releases of transformers from which the loss does not copy the logits, and the experts of a layer are one tensor."""
OWN_TYPE = (5,)
"""The release from which from_pretrained keeps the type of the checkpoint; before, it loaded in 32 bits unless told otherwise."""


def setup_of(  # noqa: PLR0913 - what a Plan leaves open
    config: Mapping[str, Any],
    model: Model | None,
    integration: str,
    *,
    ranks: int,
    nodes: int,
    hidden: int | None,
    on_cpu: bool = False,
    transformers: str | None = None,
    parts: int = 1,
    split: tuple[int, int] = (1, 1),
) -> tuple[Setup, list[str]]:
    """Return the setup of a configuration, and sentences about assumptions.

    `hidden` replaces "auto"; `ranks` is the world size; `parts`: over how many ranks accelerate splits a sequence, if the configuration
    does not say; `split`: over how many ranks the script splits tensors and layers.
    """
    c = Context(config, release(), integration, ranks)
    reported: list[str] = []
    precision = _precision(c, reported)
    tensors, layers = split if ranks % (split[0] * split[1]) == 0 else (1, 1)
    reported += [PIPELINE.format(layers)] if layers > 1 else []
    micro, steps = _batch(c, ranks // (tensors * layers), parts, reported)
    setup = Setup(
        ranks=ranks,
        nodes=nodes,
        stage=c.stage if c.stage in (0, 1, 2, 3) else 0,
        precision=precision,
        small_master=any(c.on(f"{kind}.{kind}_master_weights_and_grads") for kind in ("bf16", "fp16") if precision == kind),
        small_states=precision == "bf16" and c.on("bf16.bf16_optimizer_states"),
        wide_gradients=c.text("data_types.grad_accum_dtype") in ("fp32", "float32"),
        optimizer=_optimizer(c, reported),
        micro_batch=micro,
        accumulation=steps,
        tensor_parallel=_share(c, "tensor_parallel.autotp_size", ranks, tensors),
        split_logits=tensors > 1,
        pipeline=layers,
        sequence_parallel=_share(c, "sequence_parallel_size", ranks, parts),
        expert_parallel=_share(c, "expert_parallel.autoep_size", ranks) if c.on("expert_parallel.enabled") else 1,
        activation_offload=c.on("activation_checkpointing.cpu_checkpointing"),
        built_partitioned=integration != "deepspeed",
        loss_bytes=_loss_bytes(integration, transformers),
        split_experts=is_before(FUSED_EXPERTS, transformers),
        on_cpu=on_cpu,
    )
    setup = _with_offload(_with_zero(_with_model(setup, model), c, hidden), c)
    assumed = [key for key in ("sequence_length", "activation_checkpointing") if model is None or getattr(model, key) is None]
    return setup, [*reported, *(UNSAID[key] for key in assumed), *not_reckoned(c)]


def _with_model(setup: Setup, model: Model | None) -> Setup:
    """Add the settings of the model."""
    setup = setup._replace(sequence=SEQUENCE, attention=_attention(model))
    if model is None:
        return setup
    return setup._replace(
        sequence=model.sequence_length or SEQUENCE,
        checkpointing=bool(model.activation_checkpointing),
        recompute=model.recompute,
        activation_offload=bool(model.activation_offload) or setup.activation_offload,
        fused_loss=bool(model.fused_loss),
        tiled_mlp=bool(model.tiled_mlp),
        compiled=bool(model.compiled),
    )


def _with_zero(setup: Setup, c: Context, hidden: int | None) -> Setup:
    """Add the settings of ZeRO but for offload."""
    stage, zero = setup.stage, ZERO_SECTION
    return setup._replace(
        reduce_bucket=_count(c, "reduce_bucket_size", hidden, stage),
        prefetch_bucket=_count(c, "stage3_prefetch_bucket_size", hidden, stage),
        persistence=_count(c, "stage3_param_persistence_threshold", hidden, stage),
        sub_group=max(_count(c, "sub_group_size", hidden, stage), 1),
        reuse_distance=_count(c, "stage3_max_reuse_distance", hidden, stage),
        overlap=c.on(f"{zero}.overlap_comm") if c.has(f"{zero}.overlap_comm") else stage == 3,
        contiguous=c.on(f"{zero}.contiguous_gradients"),
        secondary=max(int(c.number(f"{zero}.zero_hpz_partition_size") or 1), 1),
        quantized_weights=c.on(f"{zero}.zero_quantized_weights"),
        quantized_gradients=c.on(f"{zero}.zero_quantized_gradients"),
        small_frozen=stage == 3 and c.on(f"{zero}.zero_quantized_nontrainable_weights"),
        gathered_on_save=stage == 3 and c.on(f"{zero}.stage3_gather_16bit_weights_on_model_save"),
    )


def _with_offload(setup: Setup, c: Context) -> Setup:
    """Add the settings of offload, ZenFlow and SuperOffload."""
    stage, off, param = setup.stage, f"{ZERO_SECTION}.offload_optimizer", f"{ZERO_SECTION}.offload_param"
    optimizer = _place(c.offload("optimizer"))
    share = min(max(c.number(f"{ZERO_SECTION}.zenflow.topk_ratio") or 0.1, 0.0), 1.0)
    return setup._replace(
        optimizer_offload=optimizer if stage else "none",
        param_offload=_place(c.offload("param")) if stage == 3 else "none",
        offload_share=min(max(c.number(f"{off}.ratio") or 1.0, 0.0), 1.0) if stage == 3 else 1.0,
        pinned=bool(c.on(f"{off}.pin_memory") or c.on(f"{param}.pin_memory")),
        optimizer_buffers=int(c.number(f"{off}.buffer_count") or 4),
        param_buffers=int(c.number(f"{param}.buffer_count") or 5),
        param_buffer=int(c.number(f"{param}.buffer_size") or 1e8),
        host_params=int(c.number(f"{param}.max_in_cpu") or 0),
        zenflow=share if _has_zenflow(c, optimizer) else 0.0,
        update_interval=max(int(c.number(f"{ZERO_SECTION}.zenflow.update_interval") or 4), 1),
        super_offload=stage == 3 and optimizer == "cpu" and c.on(f"{off}.super_offload"),
    )


SEQUENCE, SHORT = 2048, 512
"""The tokens of a sample if the Plan does not say: assumed for the estimate, and for the lower end of its range."""
PIPELINE = (
    "a pipeline of {} stages, with as many layers each: the figures are those of the fuller end, the first with the embedding and the "
    "activations of as many micro-batches, or the last with the head and the loss"
)
UNSAID = {
    "sequence_length": f"model.sequence_length is not given: {SEQUENCE} tokens are assumed, and at least {SHORT} for the ranges",
    "activation_checkpointing": (
        "model.activation_checkpointing is not given: off is assumed, which needs the most memory; the ranges begin with it on"
    ),
}


def _precision(c: Context, reported: list[str]) -> Precision:
    if c.on("torch_autocast.enabled"):
        return "autocast"
    if c.on("bf16.enabled") or c.on("bfloat16.enabled"):
        return "bf16"
    if c.on("fp16.enabled"):
        return "fp16"
    written = [c.raw.get(kind) for kind in ("bf16", "fp16")]
    if c.integration != "deepspeed" and (not any(written) or any(isinstance(w, Mapping) and w.get("enabled") == AUTO for w in written)):
        reported.append(f"the {c.integration} decides about the precision: bf16 is assumed")
        return "bf16"
    return "fp32"


def _batch(c: Context, ranks: int, parts: int, reported: list[str]) -> tuple[int, int]:
    of_each = c.number("sequence_parallel_size") or parts
    triple = evaluate_batch(written_batch(c), ranks / of_each if of_each else ranks).triple
    micro, steps = (int(n) if isinstance(n, (int, float)) and not isinstance(n, bool) and 0 < n < 1e9 else 0 for n in triple[1:])
    filled = any(c.raw.get(key) == AUTO for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"))
    if filled and c.integration == "trainer" and c.raw.get("train_micro_batch_size_per_gpu", AUTO) == AUTO:
        reported.append(f"--per_device_train_batch_size is not given: {TRAINERS_BATCH} is assumed, as the Trainer does")
        return TRAINERS_BATCH, max(steps, 1)
    if filled or not micro:
        reported.append(f"the micro-batch is not in the configuration: {max(micro, 1)} is assumed")
    return max(micro, 1), max(steps, 1)


TRAINERS_BATCH = 8
"""The default of per_device_train_batch_size (transformers/training_args.py)."""


TRAINERS_OPTIMIZERS: Mapping[str, str] = {
    "adamw_torch": "torch_adamw",
    **dict.fromkeys(("adamw_torch_fused", "adamw_apex_fused"), "torch_fused_adamw"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"), "adamw8bit"),
    **dict.fromkeys(("lion_32bit", "paged_lion_32bit"), "lion"),
    "adafactor": "adafactor",
    "adagrad": "adagrad",
    "sgd": "sgd",
    "rmsprop": "rmsprop",
}
"""`--optim` of the Trainer (OptimizerNames of transformers/training_args.py) -> the name by which its states are counted.
The others count as AdamW with 32-bit states: DeepSpeed's own if they are offloaded."""
FUSED_BY_DEFAULT = (2, 8)
"""The release of torch from which the Trainer's default is the fused AdamW (transformers/training_args.py, default_optim)."""


def add_optimizer(config: Mapping[str, Any], integration: str, options: Mapping[str, str], torch: str | None = None) -> Mapping[str, Any]:
    """Return the configuration with the optimizer of the Trainer's --optim or its default, if the configuration has none.

    `torch`: its version. Without one, the newest is assumed.
    """
    default = "adamw_torch_fused" if integration == "trainer" and not is_before(FUSED_BY_DEFAULT, torch) else ""
    kind = TRAINERS_OPTIMIZERS.get(options.get("optim", default))
    if integration == "deepspeed" or kind is None or "optimizer" in config:
        return config
    if "torch" in kind and Context(config, release(), integration, 1).offload("optimizer") != "none":
        return config
    return {**config, "optimizer": {"type": kind}}


def _optimizer(c: Context, reported: list[str]) -> str:
    """Return the optimizer's name in lower case. DeepSpeed's Adam with torch_adam is torch's."""
    kind = c.optimizer.lower()
    if not kind:
        reported.append("the script builds the optimizer: AdamW is assumed")
        return "torch_adamw" if c.offload("optimizer") == "none" else "adamw"
    if kind in ("adam", "adamw") and c.on("optimizer.params.torch_adam"):
        return "torch_adamw"
    if kind in ("sgd", "muon", "rmsprop") and c.number("optimizer.params.momentum"):
        return f"{kind}_momentum" if kind != "muon" else kind
    return kind


def _loss_bytes(integration: str, transformers: str | None) -> float:
    """Return the bytes of the loss: of an old release, of the Trainer, or of a loop of the script's own."""
    if is_before(NEW_LOSS, transformers):
        return OLD_LOSS_BYTES
    return LOSS_BYTES if integration == "trainer" else HELD_LOSS_BYTES


def placed_bytes(written: str, transformers: str | None) -> int:
    """Return the bytes of a weight as from_pretrained loads it, by the type that the script gives it."""
    if written == "default":
        return 4 if is_before(OWN_TYPE, transformers) else 2
    return 4 if "float32" in written or written in ("torch.float", "'float'") else 2


def is_before(release: tuple[int, ...], transformers: str | None) -> bool:
    """Return whether a version of transformers is older than a release. Without a version, the newest is assumed."""
    try:
        return transformers is not None and version_tuple(transformers) < release
    except ValueError:
        return False


def _place(word: str) -> Place:
    return "cpu" if word == "cpu" else "nvme" if word == "nvme" else "none"


def _attention(model: Model | None) -> Attention:
    given = model.attention if model else None
    return given if given in get_args(Attention) else "sdpa"  # type: ignore[return-value]


def _count(c: Context, key: str, hidden: int | None, stage: int) -> int:
    """Return a number of elements, with "auto" as its reader fills it in."""
    path = f"{ZERO_SECTION}.{key}"
    section = c.raw.get(ZERO_SECTION)
    if isinstance(section, Mapping) and section.get(key) == AUTO and hidden:
        filled = value_of(path, hidden, stage)
        if filled is not None:
            return filled
    return int(min(c.number(path) or 0, 1e12))


def _has_zenflow(c: Context, offload: Place) -> bool:
    section = c.raw.get(ZERO_SECTION)
    return offload == "cpu" and isinstance(section, Mapping) and isinstance(section.get("zenflow"), Mapping)


def _share(c: Context, path: str, ranks: int, otherwise: int = 1) -> int:
    """Return a degree of parallelism if it divides the ranks; else 1."""
    degree = int(c.number(path) or otherwise)
    return degree if 1 <= degree <= ranks and ranks % degree == 0 else 1


def configurations(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """Return the configurations of a Plan by model: one under "", or those under `models:`."""
    named = {name: config for name, config in plan.configurations.items() if name}
    return named or {"": plan.deepspeed}
