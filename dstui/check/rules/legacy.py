"""Rules about sections that 0.19.8 has removed: what older releases require of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstui.check.context import MISSING, Context, Problem
from dstui.check.rule import Problems, rule

UNTIL = "0.18.2"
COMPRESSION = "compression_training"
SHARED, GROUPS = "shared_parameters", "different_groups"
CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "weight_quantization": {"quantization_type": ("symmetric", "asymmetric"), "rounding": ("nearest", "stochastic")},
    "activation_quantization": {"quantization_type": ("symmetric", "asymmetric"), "range_calibration": ("dynamic", "static")},
    "sparse_pruning": {"method": ("l1", "topk", "snip_momentum")},
    "row_pruning": {"method": ("l1", "topk")},
    "head_pruning": {"method": ("l1", "topk")},
    "channel_pruning": {"method": ("l1", "topk")},
}
"""Technique of the compression library -> shared parameter -> its valid words."""
GROUP_NEEDS: Mapping[str, tuple[str, ...]] = {
    "weight_quantization": ("start_bits", "target_bits"),
    "activation_quantization": ("bits",),
    **dict.fromkeys(("sparse_pruning", "row_pruning", "head_pruning", "channel_pruning"), ("dense_ratio",)),
}
"""Technique -> keys that each of its groups needs."""
MODES = ("dense", "fixed", "variable", "bigbird", "bslongformer")


def _not_a_section(c: Context, path: str) -> Problem:
    return c.problem(path, f"{path} must be a section", says="has no attribute", fix=c.drop(path, f"remove {path}"))


@rule("DS290", "error", when="parse", says="KeyError: 'enabled'", source="runtime/config.py (get_pld_params and its like)", until=UNTIL)
def switch_is_missing(c: Context) -> Problems:
    """A section whose key `enabled` DeepSpeed removes without checking that it exists."""
    for section in ("progressive_layer_drop", "curriculum_learning", "amp"):
        content = c.written(section)
        if isinstance(content, Mapping) and "enabled" not in content:
            path = f"{section}.enabled"
            yield c.problem(section, f"{section} needs enabled", says="'enabled'", fix=c.put(path, False, "add enabled false"))
        elif content is not MISSING and not isinstance(content, Mapping):
            yield _not_a_section(c, section)


@rule("DS291", "error", when="parse", says="Given sparsity mode", source="runtime/config.py (get_sparse_attention)", until=UNTIL)
def sparse_attention(c: Context) -> Problems:
    """A mode of sparse attention that does not exist."""
    mode = c.section("sparse_attention").get("mode", "fixed")
    if mode not in MODES:
        path = "sparse_attention.mode"
        yield c.problem(path, f"mode is {mode!r}: {', '.join(MODES)}", fix=c.put(path, "fixed", "write fixed, the default"))


@rule("DS292", "error", when="parse", says="Invalid", source="compression/config.py", until=UNTIL)
def compression(c: Context) -> Problems:
    """A technique of the compression library with missing or invalid values."""
    for technique, choices in CHOICES.items():
        path = f"{COMPRESSION}.{technique}"
        section = c.written(path)
        if section is MISSING:
            continue
        if not isinstance(section, Mapping):
            yield _not_a_section(c, path)
            continue
        yield from _shared(c, f"{path}.{SHARED}", technique, choices)
        yield from _groups(c, f"{path}.{GROUPS}", technique)
    yield from _quantize(c)


def _quantize(c: Context) -> Iterator[Problem]:
    """Yield problems of compression_training.shared_parameters, which is read like that of weight_quantization and must be off."""
    path = f"{COMPRESSION}.{SHARED}"
    yield from _shared(c, path, "weight_quantization", CHOICES["weight_quantization"])
    if c.section(path).get("enabled"):
        says = "name 'QUANTIZE_TRAINING' is not defined"
        yield c.problem(f"{path}.enabled", "this switch stops DeepSpeed", says=says, fix=c.drop(f"{path}.enabled", "remove it"))


def _shared(c: Context, path: str, technique: str, choices: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    shared = c.written(path)
    if shared is MISSING:
        return
    if not isinstance(shared, Mapping):
        yield _not_a_section(c, path)
        return
    for name, allowed in choices.items():
        if name in shared and shared[name] not in allowed:
            words = ", ".join(allowed)
            fix = c.put(f"{path}.{name}", allowed[0], f"write {allowed[0]}")
            yield c.problem(f"{path}.{name}", f"{name} is {shared[name]!r}: {words}", fix=fix)
    mixed = shared.get("fp16_mixed_quantize", {})
    if technique == "weight_quantization" and not isinstance(mixed, Mapping):
        yield _not_a_section(c, f"{path}.fp16_mixed_quantize")
    if technique == "head_pruning" and shared.get("enabled") and "num_heads" not in shared:
        says = "num_heads must be specified for head pruning"
        yield c.problem(path, "head_pruning needs num_heads", says=says, fix=c.put(f"{path}.enabled", False, "turn it off"))
    if technique == "sparse_pruning" and shared.get("method") == "snip_momentum":
        yield from _momentum(c, path, shared)


def _momentum(c: Context, path: str, shared: Mapping[str, Any]) -> Iterator[Problem]:
    start = shared.get("schedule_offset", 1000)
    try:
        fits = 0 < shared.get("dense_ratio", 0.1) < 1 and start <= shared.get("schedule_offset_end", start)
    except TypeError:
        fits = False
    if not fits:
        message = "snip_momentum needs a dense_ratio between 0 and 1, and a schedule that does not end before it starts"
        yield c.problem(path, message, fix=c.put(f"{path}.method", "l1", "use l1"))


def _groups(c: Context, path: str, technique: str) -> Iterator[Problem]:
    groups = c.written(path)
    if groups is MISSING:
        yield c.problem(path, f"{technique} needs different_groups", says="'different_groups'", fix=c.put(path, {}, "add an empty section"))
        return
    if not isinstance(groups, Mapping):
        yield _not_a_section(c, path)
        return
    for name, group in groups.items():
        params = group.get("params") if isinstance(group, Mapping) else None
        missing = [need for need in GROUP_NEEDS[technique] if not isinstance(params, Mapping) or need not in params]
        if missing:
            message = f"the group {name} needs params with {' and '.join(GROUP_NEEDS[technique])}"
            yield c.problem(
                f"{path}.{name}", message, says=f"{missing[0]} must be specified", fix=c.drop(f"{path}.{name}", f"remove {name}")
            )


ELASTICITY = "elasticity"
AT_LEAST = {"min_gpus": 1, "max_gpus": 1, "model_parallel_size": 1, "num_gpus_per_node": 1, "min_time": 0}
OWN = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def elastic(c: Context) -> bool:
    """Return whether elastic training is on, which sets the batch keys itself."""
    return c.key(ELASTICITY) is not None and bool(c.section(ELASTICITY).get("enabled"))


@rule("DS293", "error", when="parse", says="Elasticity", source="elasticity/config.py, elasticity/elasticity.py", until=UNTIL)
def elasticity(c: Context) -> Problems:
    """Elastic training with a missing value, or with a fixed batch size."""
    section = c.section(ELASTICITY)
    if not elastic(c):
        return
    off = c.put(f"{ELASTICITY}.enabled", False, "turn elasticity off")
    for name in ("max_train_batch_size", "micro_batch_sizes"):
        if name not in section:
            says = f"Elasticity config missing {name}"
            yield c.problem(ELASTICITY, f"elasticity needs {name}", says=says, fix=off)
    sizes = section.get("micro_batch_sizes", [1])
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size > 0 for size in sizes):
        yield c.problem(f"{ELASTICITY}.micro_batch_sizes", "micro_batch_sizes must be a list of positive integers", fix=off)
    for name, least in AT_LEAST.items():
        value = section.get(name, least)
        if not isinstance(value, (int, float)) or value < least:
            yield c.problem(f"{ELASTICITY}.{name}", f"{name} must be {least} or more", fix=off)
    given = [name for name in OWN if c.has(name)]
    if given and not section.get("ignore_non_elastic_batch_info"):
        says = "One or more batch related parameters were found in your ds_config"
        yield c.problem(given[0], f"elasticity sets {given[0]} itself", says=says, fix=off)


@rule(
    "DS294",
    "error",
    when="parse",
    says="unsupported operand type(s) for ** or pow()",
    source="runtime/config.py (get_initial_dynamic_scale)",
    until="0.16.9",
)
def scale_power(c: Context) -> Problems:
    """fp16.initial_scale_power is not a valid power of two."""
    path = "fp16.initial_scale_power"
    value = c.written(path)
    if value is MISSING or not c.section("fp16").get("enabled"):
        return
    if (
        not isinstance(value, (int, float))
        or (isinstance(value, int) and value > 10**6)
        or (isinstance(value, float) and 1024 <= value < float("inf"))
    ):
        yield c.problem(path, "initial_scale_power must be a small number", fix=c.put(path, 16, "write 16, the default"))
