"""Rules about releases of DeepSpeed: removed features, and known regressions of the installed release."""

from __future__ import annotations

from dstui.check.context import Context
from dstui.check.regressions import REGRESSIONS
from dstui.check.rule import Problems, rule
from dstui.plan.catalogue import spans, version_tuple
from dstui.plan.finding import Fix

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


@rule("KR001", "warning", source="dstui/check/regressions.py")
def known_regression(c: Context) -> Problems:
    """The installed release of DeepSpeed has a known defect that affects this Plan."""
    if c.installed is None:
        return
    for known in REGRESSIONS:
        if version_tuple(known.since) <= version_tuple(c.installed) < version_tuple(known.fixed) and known.applies(c):
            message = f"DeepSpeed {c.installed}: {known.symptom}"
            fix = Fix(f"install deepspeed>={known.fixed}" + (f", or {known.instead}" if known.instead else ""))
            yield c.problem(known.path, message, why=f"{known.link}; fixed in {known.fixed}", fix=fix)
