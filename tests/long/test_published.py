"""The forecast compared to published measurements, and to DeepSpeed's own `estimate_zero*` on the same rows.

    python -m pytest -q -s -n0 tests/long/test_published.py

prints every row, the median and the worst error by group, and every wrong "fits" by name. published_memory.csv has the rows with their
URLs. Most were known while the formulas were made (activations and states are measured, the rest is not fitted), so this shows how well
the forecast describes them, not how well it would do on others. Rows without DeepSpeed are marked.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dstui.forecast.capacity import Capacity
from dstui.forecast.forecast import Forecast, Shared, assembled, with_doubt, with_ranges
from dstui.forecast.memory import CUDA_CONTEXT, nccl_bytes
from dstui.forecast.model import ModelFacts, counts, facts_of_config, stored_as
from dstui.forecast.modelled import Modelled
from dstui.forecast.presets import presets
from dstui.forecast.rates import Rates
from dstui.forecast.read_setup import (
    FUSED_EXPERTS,
    MEGATRON_LOSS_BYTES,
    NEW_LOSS,
    OLD_LOSS_BYTES,
    PREFERENCE_LOSS_BYTES,
    SWIFT_LOSS_BYTES,
    is_before,
)
from dstui.forecast.setup import LOSS_BYTES, Setup
from dstui.plan.model import Lora, Model

GIB = 1 << 30
NO_RATES = Rates()
ROWS = list(csv.DictReader((Path(__file__).parent / "published_memory.csv").open()))
QWEN = {
    "1.8B": (2048, 24, 16, 5504, 151936),
    "7B": (4096, 32, 32, 11008, 151936),
    "14B": (5120, 40, 40, 13696, 152064),
    "72B": (8192, 80, 64, 24576, 152064),
}
"""Qwen's first generation by hidden size, layers, heads, MLP width, vocabulary: the tensors are those of Qwen2."""


def facts_of(name: str) -> ModelFacts:
    """Return the model of a row: a preset, or one with given sizes."""
    if name in presets():
        return facts_of_config(presets()[name])
    if name.startswith("Qwen-"):
        hidden, layers, heads, ffn, rows = QWEN[name.removeprefix("Qwen-")]
        config: dict[str, Any] = {"model_type": "qwen2", "intermediate_size": ffn, "tie_word_embeddings": False}
        config |= {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": rows}
        return facts_of_config(config)
    kind, *numbers = name.split(":")
    hidden, layers, rows, *more = map(int, numbers)
    if kind == "gpt":
        heads = more[1] if len(more) > 1 else hidden // 64
        return facts_of_config(
            {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": rows, "n_positions": more[0]}
        )
    ffn, heads, keys = more
    config = {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": rows, "intermediate_size": ffn}
    return facts_of_config({**config, "num_attention_heads": heads, "num_key_value_heads": keys, "tie_word_embeddings": kind == "tied"})


ADAPTED = {
    "on the attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "on queries and values": ("q_proj", "v_proj"),
    "on q, k and v": ("q_proj", "k_proj", "v_proj"),
    "on query_key_value": ("query_key_value",),
    "on c_attn and c_proj": ("c_attn", "c_proj"),
    "on c_attn": ("c_attn",),
}
"""The layers with LoRA, as the note of a row names them; else all linear layers."""


def is_megatrons(row: dict[str, str]) -> bool:
    """Return whether Megatron's layers ran."""
    return row["note"].startswith("Megatron") or row["model"].startswith("gpt-neox")


def loss_of(row: dict[str, str]) -> float:
    """Return the bytes of the logits and the loss in the framework of a row."""
    if "ms-swift" in row["source"]:
        return PREFERENCE_LOSS_BYTES if "DPO" in row["note"] else SWIFT_LOSS_BYTES
    if is_megatrons(row):
        return MEGATRON_LOSS_BYTES
    return OLD_LOSS_BYTES if is_before(NEW_LOSS, row["transformers"] or None) else LOSS_BYTES


def more_of(row: dict[str, str]) -> dict[str, Any]:
    """Return the settings of the column `more`, such as sequence_parallel=8 tiled_mlp."""
    words = [word.partition("=") for word in row.get("more", "").split() if word != "selective"]
    found = {name: float(value) if "." in value else int(value) if value.isdecimal() else value or True for name, _, value in words}
    return {**found, **({"recompute": "selective"} if "selective" in row.get("more", "").split() else {})}


def of_row(row: dict[str, str], rates: Rates = NO_RATES) -> Forecast:
    """Return the forecast of a row."""
    targets = next((modules for words, modules in ADAPTED.items() if words in row["note"]), ("all-linear",))
    more = more_of(row)
    lora = Lora(r=int(row["lora_r"]), target_modules=targets, dropout=more.pop("dropout", 0.0)) if row["lora_r"] else None
    again, length = row["checkpointing"] == "yes", int(row["sequence"])
    facts, gptq = facts_of(row["model"]), "GPTQ" in row["note"]
    facts = stored_as(facts, "4 bits") if gptq else facts
    model = Model(
        lora=lora, quantization=None if gptq else row["quantization"] or None, activation_checkpointing=again, sequence_length=length
    )
    more.pop("context", None)
    stage, reference, ram = int(row["stage"]), more.pop("reference", False), more.pop("ram", None)
    setup = Setup(
        ranks=int(row["gpus"]),
        nodes=nodes_of(row),
        stage=stage,
        precision=row["precision"].removesuffix(" small"),  # type: ignore[arg-type]
        small_master=row["precision"].endswith("small"),
        small_states=row["precision"].endswith("small"),
        optimizer=row["optimizer"],
        optimizer_offload=row["optimizer_offload"],  # type: ignore[arg-type]
        param_offload=row["param_offload"],  # type: ignore[arg-type]
        micro_batch=int(row["micro_batch"]),
        accumulation=int(row["accumulation"]),
        sequence=length,
        checkpointing=again,
        attention=row["attention"],  # type: ignore[arg-type]
        fused_loss=row["fused_loss"] == "yes",
        liger=row["fused_loss"] == "yes" and not row["lora_r"],  # as all sources say; those of LoRA fuse less
        reduce_bucket=int(row["reduce_bucket"] or 500_000_000),
        overlap=stage == 3,
        loss_bytes=loss_of(row),
        split_experts=is_before(FUSED_EXPERTS, row["transformers"] or None),
        built_partitioned=row["built_partitioned"] == "yes",
        megatron=is_megatrons(row),
    )._replace(**{name: value for name, value in more.items() if name != "per_node"})
    room = Capacity(ranks=setup.ranks, nodes=setup.nodes, gpu=int(float(row["gpu_gib"]) * GIB), host=ram and ram * GIB)
    models = [Modelled(facts=facts, model=model, setup=setup, shorter="samples up to this length" in row["note"])]
    if reference:  # the model before the training, which DPO compares with
        models.append(Modelled(name="reference", facts=models[0].facts, model=None, setup=setup._replace(training=False)))
    rates = with_doubt(rates, models)
    shared: Shared = {}
    return with_ranges(assembled(models, room, rates, (), shared), models, room, rates, shared)


def nodes_of(row: dict[str, str]) -> int:
    """Return the nodes of a row: with 8 GPUs each, unless it says another number."""
    return max(int(row["gpus"]) // more_of(row).get("per_node", 8), 1)


def estimated(row: dict[str, str]) -> float | None:
    """Return the estimate of DeepSpeed's own estimators in GiB; they know stages 2 and 3, and no activations."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as stage_3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as stage_2

    n = counts(facts_of(row["model"]), None)
    assert n is not None
    per_node, nodes = min(int(row["gpus"]), 8), max(int(row["gpus"]) // 8, 1)
    offload = row["optimizer_offload"] != "none"
    if row["stage"] in ("1", "2"):
        found = stage_2(n.params, num_gpus_per_node=per_node, num_nodes=nodes, cpu_offload=offload)
    elif row["stage"] == "3":
        weights = row["param_offload"] != "none"
        found = stage_3(n.params, n.head, num_gpus_per_node=per_node, num_nodes=nodes, cpu_offload=offload, cpu_offload_params=weights)
    else:
        return None
    return float(found[1]) / GIB


def group_of(row: dict[str, str]) -> str:
    kind = "LoRA" if row["lora_r"] else "everything trained"
    return f"{kind}{', without DeepSpeed' if 'no DeepSpeed' in row['note'] else ''}, {row['metric']}"


FEATURES: Mapping[str, Callable[[dict[str, str]], bool]] = {
    "LoRA": lambda r: bool(r["lora_r"]),
    "quantized": lambda r: bool(r["quantization"]),
    "8k tokens and more": lambda r: int(r["sequence"]) >= 8192,
    "offload": lambda r: r["optimizer_offload"] != "none",
    "recomputed": lambda r: r["checkpointing"] == "yes",
    "fused loss": lambda r: r["fused_loss"] == "yes",
    "stage 3": lambda r: r["stage"] == "3",
    "with DeepSpeed": lambda r: "no DeepSpeed" not in r["note"],
    "not seen before": lambda r: "not seen" in r["note"],
}


def name_of(row: dict[str, str]) -> str:
    place = {"none": "", "cpu": " + RAM"}[row["optimizer_offload"]] + (" + weights" if row["param_offload"] != "none" else "")
    lora = f" LoRA {row['lora_r']}" if row["lora_r"] else ""
    batch = f"{row['micro_batch']}x{row['sequence']}{' recomputed' if row['checkpointing'] == 'yes' else ''}"
    return f"{row['model'].split('/')[-1]}{lora} {row['quantization']} {row['gpus']} x {row['gpu']} Z{row['stage']}{place} {row['precision']} {batch}"


def test_errors_against_measurements_are_unchanged() -> None:
    errors: dict[str, list[float]] = defaultdict(list)
    theirs: list[float] = []
    rows: list[tuple[dict[str, str], float, str]] = []
    for row in (row for row in ROWS if row["measured_gib"] and "read before" not in row["note"]):
        found, real = of_row(row), float(row["measured_gib"])
        around = {"process": 0, "reserved": CUDA_CONTEXT + nccl_bytes(found.setup)} if found.setup else {}
        ours = ((found.allocated if row["metric"] == "allocated" else found.shown) or 0) / GIB - around.get(row["metric"], 0) / GIB
        error, estimate = ours / real - 1, estimated(row)
        errors[group_of(row)].append(error)
        rows.append((row, error, name_of(row)))
        if estimate is not None and not row["lora_r"]:
            theirs.append(estimate / real - 1)
        told = f"{estimate:7.1f}" if estimate is not None else "      -"
        print(f"{name_of(row):<78} {real:7.1f} {ours:7.1f} {error:+6.1%}  estimate_zero {told}")
    for feature, has in FEATURES.items():
        sizes = sorted((abs(error), name) for row, error, name in rows if has(row))
        print(
            f"{feature:<20} {len(sizes):3} rows  median {median(s for s, _ in sizes):5.1%}  p90 {sizes[int(0.9 * len(sizes))][0]:5.1%}  worst {sizes[-1][0]:5.1%} ({sizes[-1][1]})"
        )
    for group, some in sorted(errors.items()):
        sizes = sorted(map(abs, some))
        print(f"{group:<50} {len(some):3} rows  median {median(sizes):5.1%}  worst {max(some, key=abs):+6.1%}")
    print(
        f"{'DeepSpeed estimate_zero*, everything trained':<50} {len(theirs):3} rows  median {median(map(abs, theirs)):5.1%}  worst {max(theirs, key=abs):+6.1%}"
    )
    trained = [abs(e) for group, some in errors.items() if group.startswith("everything") for e in some]
    with_deepspeed = [abs(e) for group, some in errors.items() if group.startswith("LoRA, ") and "without" not in group for e in some]
    assert median(trained) < 0.045 and median(with_deepspeed) < 0.03
    assert median(trained) < median(map(abs, theirs)) / 5


def test_verdicts_on_runs_that_fitted_and_that_did_not() -> None:
    wrong, tight = [], 0
    for row in ROWS:
        verdict = of_row(row).gpu.verdict
        tight += verdict == "tight"
        if (verdict == "too big") == (row["fits"] == "yes") and verdict != "tight":
            wrong.append(f"{name_of(row)}: we say {verdict}, it {'ran' if row['fits'] == 'yes' else 'ran out of memory'} ({row['source']})")
    print(f"{len(ROWS)} rows, {len(wrong)} wrong, {tight} called tight; wrong:")
    print("\n".join(wrong))
    assert len(wrong) <= len(ROWS) // 15
    assert not [line for line in wrong if "we say fits" in line]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_row_is_complete(row: dict[str, str]) -> None:
    assert row["source"].startswith("http") and row["fits"] in ("yes", "no")
    assert facts_of(row["model"]).params
