"""Rules about releases of DeepSpeed: removed features, and known regressions of the installed release.

The regressions are a table of facts (affected releases, conditions, symptom, workaround), each read in the linked issue or pull request
and, for the versions, in the tags of DeepSpeed's repository. An entry can be deleted when no release in use has the defect.
"""

from __future__ import annotations

from collections.abc import Callable

from dstui.base.dataclass import dataclass
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.plan.catalogue import ZERO_SECTION, spans, version_tuple
from dstui.plan.finding import Fix

AS_OF = "2026-11-23"
"""The date of the table's last review."""
DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """One defect of some releases."""

    since: str
    """The first release with the defect."""
    fixed: str
    """The first release without it again."""
    applies: Callable[[Context], bool]
    path: str
    """The key that it is about."""
    symptom: str
    """The effect, as the end of a sentence."""
    instead: str
    """A workaround if the release cannot be changed; empty if there is none."""
    link: str


def _trains_a_part(c: Context) -> bool:
    """Return whether some weights are frozen."""
    model = c.plan.model if c.plan is not None else None
    return model is not None and (model.lora is not None or model.trainable is not None)


def _recomputes(c: Context) -> bool:
    return c.plan is not None and c.plan.model is not None and bool(c.plan.model.activation_checkpointing)


def _accumulates(c: Context) -> bool:
    return (c.number("gradient_accumulation_steps") or 1) > 1


REGRESSIONS = (
    Regression(
        since="0.14.0",
        fixed="0.19.3",
        applies=lambda c: c.stage == 3 and _trains_a_part(c) and _recomputes(c),
        path=f"{ZERO_SECTION}.stage",
        symptom="with frozen weights and non-reentrant checkpointing (the default of transformers 5) the backward pass fails with "
        "CheckpointError: Recomputed values … have different metadata, saved [1024] and recomputed [0]",
        instead="checkpoint with use_reentrant=True, or use stage 2",
        link="https://github.com/huggingface/transformers/issues/47254",
    ),
    Regression(
        since="0.17.6",
        fixed="0.18.3",
        applies=lambda c: c.stage == 2,
        path=f"{ZERO_SECTION}.stage",
        symptom="the gradients of ZeRO-2 are silently wrong: their norm is too small, and training learns less",
        instead="use stage 1 or 3",
        link=f"{DEEPSPEED}/issues/7718",
    ),
    Regression(
        since="0.18.5",
        fixed="0.18.7",
        applies=lambda c: c.stage in (1, 2, 3),
        path=f"{ZERO_SECTION}.stage",
        symptom="each gradient hook counts all parameters again: steps took 2.5 times as long (24 layers, ZeRO-2, 8 GPUs)",
        instead="",
        link=f"{DEEPSPEED}/issues/7885",
    ),
    Regression(
        since="0.15.2",
        fixed="0.19.0",
        applies=lambda c: c.stage in (1, 2) and c.offload("optimizer") == "cpu" and _accumulates(c),
        path=f"{ZERO_SECTION}.offload_optimizer",
        symptom="of the accumulated micro-batches only the first counts for the norm of the gradients: it is too small, "
        "and they are hardly ever clipped",
        instead="use stage 3, or keep the optimizer on the GPU",
        link=f"{DEEPSPEED}/pull/7967",
    ),
    Regression(
        since="0.18.3",
        fixed="0.19.0",
        applies=lambda c: c.stage == 1 and c.on("bf16.enabled") and c.text("data_types.grad_accum_dtype") in ("fp32", "float32"),
        path="data_types.grad_accum_dtype",
        symptom="the last micro-batch of each step is left out of the average over the ranks: loss and gradients depend on the micro-batch",
        instead="use stage 2, or leave grad_accum_dtype out",
        link=f"{DEEPSPEED}/pull/7985",
    ),
    Regression(
        since="0.17.5",
        fixed="0.18.5",
        applies=lambda c: c.stage == 2 and c.on(f"{ZERO_SECTION}.overlap_comm"),
        path=f"{ZERO_SECTION}.overlap_comm",
        symptom="overlap_comm overlaps nothing: the reduction waits for the backward pass",
        instead="",
        link=f"{DEEPSPEED}/issues/7804",
    ),
    Regression(
        since="0.16.6",
        fixed="0.19.6",
        applies=lambda c: c.stage == 3 and c.on("compile.deepcompile") and _trains_a_part(c),
        path="compile.deepcompile",
        symptom="DeepCompile fails with a KeyError in engine.compile() where a weight is frozen",
        instead="turn off deepcompile",
        link=f"{DEEPSPEED}/pull/8214",
    ),
    Regression(
        since="0.14.4",
        fixed="0.19.5",
        applies=lambda c: c.stage == 3 and (c.number(f"{ZERO_SECTION}.zero_hpz_partition_size") or 1) > 1,
        path=f"{ZERO_SECTION}.zero_hpz_partition_size",
        symptom="the second copy of a small weight may lie outside of it: IndexError in _partition_param_sec",
        instead="leave out zero_hpz_partition_size",
        link=f"{DEEPSPEED}/issues/6659",
    ),
)


INSTEAD = {
    "amp": "use bf16, fp16 or torch_autocast",
    "elasticity": "set train_batch_size or train_micro_batch_size_per_gpu directly",
    "curriculum_learning": "its place is data_efficiency.data_sampling.curriculum_learning now",
    "zero_optimization.mics_shard_size": "use zero_hpz_partition_size to keep a copy of the weights within a node",
    "zero_optimization.mics_hierarchical_params_gather": "use zero_hpz_partition_size to keep a copy of the weights within a node",
}


@rule("DS028", "error", when="parse", says="has been removed", source="runtime/config.py:81-141", since="0.19.8")
def removed_feature(c: Context) -> Problems:
    """A section or key of a removed feature; even an empty one stops the run."""
    for path, says in c.release.removed.items():
        if c.has(path):
            known = spans(path)
            last = f" (DeepSpeed {known[-1]} was the last release with it)" if known else ""
            instead = f"; {INSTEAD[path]}" if path in INSTEAD else ""
            yield c.problem(path, f"{path} has been removed{last}", says=says, fix=c.drop(path, f"remove {path}{instead}"))


REPLACED = {"onebitadam": "AdamW", "zerooneadam": "AdamW", "onebitlamb": "Lamb"}


@rule("DS042", "error", when="initialize", says="is not a supported DeepSpeed Optimizer", source="runtime/engine.py:2018", since="0.19.8")
def one_bit_optimizer(c: Context) -> Problems:
    """The 1-bit and 0/1 optimizers have been removed."""
    kind = c.text("optimizer.type")
    if kind.lower() in REPLACED:
        new = REPLACED[kind.lower()]
        says = f"{kind} is not a supported DeepSpeed Optimizer"
        fix = c.put("optimizer", {"type": new, "params": _common(c)}, f"use {new}")
        yield c.problem("optimizer.type", f"the optimizer {kind} has been removed in 0.19", says=says, fix=fix)


def _common(c: Context) -> dict[str, object]:
    kept = ("lr", "betas", "eps", "weight_decay")
    return {name: value for name, value in c.section("optimizer.params").items() if name in kept}


@rule("KR001", "warning", source="dstui/check/rules/releases.py")
def known_regression(c: Context) -> Problems:
    """The installed release of DeepSpeed has a known defect that affects this Plan."""
    if c.installed is None:
        return
    for known in REGRESSIONS:
        if version_tuple(known.since) <= version_tuple(c.installed) < version_tuple(known.fixed) and known.applies(c):
            message = f"DeepSpeed {c.installed}: {known.symptom}"
            fix = Fix(f"install deepspeed>={known.fixed}" + (f", or {known.instead}" if known.instead else ""))
            yield c.problem(known.path, message, why=f"{known.link}; fixed in {known.fixed}", fix=fix)
