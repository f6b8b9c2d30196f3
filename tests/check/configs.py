"""Hypothesis strategies for DeepSpeed configurations: every key of a catalogue, valid and odd values, alone and combined."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 4, 7, 8, -1, 0.0, 1.0, 0.5, 1.5, 2.0, -0.5, 5e8, 1e30, float("inf"), float("nan"), 2**70),
    *("", "auto", "0", "1", "3", "1.0", "1.5", "5e8", "1e-4", "true", "True", "yes", "off", "None", "none", "cpu", "nvme", "fp16", "bf16"),
    *("fp32", "float16", "int8", "FP16", "torch", "mean", "sum", "SUM", "Warn", "fail", "step", "fast", "replica", "throughput", "x", "%d"),
    *([], [1], ["a"], ["z1"], ["a.B", 2], {}, {"enabled": True}, {"enabled": "yes"}, {"x": 1}, {"device": "cpu"}),
)
TYPES = ("AdamW", "Adam", "adam", "SGD", "Lion", "Lamb", "Muon", "Adagrad", "OneBitAdam", "sgd", "Nope", None, 5)
SCHEDULES = ("WarmupLR", "WarmupDecayLR", "OneCycle", "StepLR", "Nope", None, 5)
NAMES = ("stage", "enabled", "device", "typo", "offload_optimizer", "lr", "opt_level", "strict", "_comment", "cpu_offload_params", "total")
BATCHES = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 32, 48, 64, 0, -2, None, 2.0, 1.5, "8", "auto", [4], True, float("nan")))
SMALL = st.sampled_from((1, 1, 1, 2, 2, 3, 4, 8))


def good(record: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return valid values of a key."""
    kind, allowed = str(record["type"]), record.get("choices")
    if record["path"] == "optimizer.type":
        return st.sampled_from(TYPES[:8])
    if record["path"] == "scheduler.type":
        return st.sampled_from(SCHEDULES[:4])
    if allowed:
        return st.sampled_from(list(allowed)) if not kind.startswith("list") else st.lists(st.sampled_from(list(allowed)), max_size=2)
    low = record.get("ge", record.get("minimum", record.get("gt", 0)))
    high = record.get("le", record.get("lt", low + 1000))
    table: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "int": st.integers(int(low) + ("gt" in record), int(low) + 10**6),
        "float": st.floats(low, high, exclude_min="gt" in record, exclude_max="lt" in record),
        "str": st.sampled_from(("a", "auto", "x/y")),
        "path": st.just("/tmp/x"),
        "section": st.just({}),
        "dict": st.sampled_from(({}, {"a": 1})),
        "list": st.just([]),
        "list[str]": st.lists(st.sampled_from(("a", "b.C")), max_size=2),
        "tuple": st.just([]),
        "null": st.none(),
    }
    return st.one_of([table.get(part, st.sampled_from((None, 1, "auto", True))) for part in kind.split(" | ")])


@st.composite
def configs(draw: st.DrawFn, records: Sequence[Mapping[str, Any]], removed: Sequence[str] = ()) -> dict[str, Any]:
    """Draw a configuration with a mostly consistent batch, some keys with valid values, and a few odd ones."""
    config: dict[str, Any] = {}
    if draw(st.integers(0, 9)) != 6:
        config["train_micro_batch_size_per_gpu"] = draw(SMALL)
    if draw(st.integers(0, 3)) == 2:
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
            if draw(st.booleans()):
                config[name] = draw(BATCHES)
    if draw(st.integers(0, 2)):
        put(config, "zero_optimization.stage", draw(st.sampled_from((0, 1, 2, 3))))
    for record in draw(st.lists(st.sampled_from(records), max_size=6)):
        odd = draw(st.integers(0, 7)) == 5
        put(config, draw(spelling(record)), draw(st.sampled_from(ODD) if odd else good(record)))
    if draw(st.integers(0, 7)) == 5:
        parent = draw(st.sampled_from([r["path"] for r in records if str(r["type"]).startswith("section")] + [""]))
        put(config, f"{parent}.{draw(st.sampled_from(NAMES))}".lstrip("."), draw(st.sampled_from(ODD)))
    if removed and draw(st.integers(0, 40)) == 23:
        put(config, draw(st.sampled_from(removed)), draw(st.sampled_from(ODD)))
    return config


def spelling(record: Mapping[str, Any]) -> st.SearchStrategy[str]:
    """Return the path of a key, sometimes with its Python name."""
    path = str(record["path"])
    if "python_name" not in record:
        return st.just(path)
    return st.sampled_from((path, path, path, f"{path.rpartition('.')[0]}.{record['python_name']}"))


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Write a value at a dotted path if its parents are sections or missing."""
    *parents, last = path.split(".")
    at: Any = config
    for name in parents:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            return
    at[last] = copy.deepcopy(value)
