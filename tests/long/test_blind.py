"""The forecast compared to published rows that nobody had seen when it was made.

    python -m pytest -q -s -n0 tests/long/test_blind.py

blind_rows.csv was collected before any of its rows was compared with a forecast. The first comparison gave, for memory (98 rows), a median
error of 11.5 % and 77.9 % at the 90th percentile, for speed (97 rows) 11.0 % and 35.6 %, and one wrong "fits". Three causes were fixed by
following the libraries, not by fitting: bitsandbytes quantizes experts before transformers 5, the loss copies the logits before
transformers 4.49, and LoRA's kernels move bytes. Since then these rows are known, and no constant was fitted to them.

Outliers that no DeepSpeed job shows are listed separately: FSDP of one release kept more on several GPUs than on one, weights that were
prepared in 32 bits (DeepSpeed casts them back), LitGPT's own model, and the longest context that another tool states for a card.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from test_published import GIB, name_of, of_row

from dstui.forecast.hardware import named_machine
from dstui.forecast.memory import CUDA_CONTEXT
from dstui.forecast.rates import Rates, rates_of

ROWS = list(csv.DictReader((Path(__file__).parent / "blind_rows.csv").open()))
Row = dict[str, str]
OUTSIDE = int(CUDA_CONTEXT)
"""Memory of a process outside of torch's allocator."""
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "LoRA": lambda r: bool(r["lora_r"]) and not r["quantization"],
    "QLoRA": lambda r: bool(r["quantization"]),
    "everything trained": lambda r: not r["lora_r"],
    "mixture of experts": lambda r: any(word in r["model"] for word in ("Mixtral", "A3B", "gpt-oss")),
    "8k tokens and more": lambda r: int(r["sequence"]) >= 8192,
    "weights in RAM": lambda r: r["param_offload"] != "none",
    "fused loss": lambda r: r["fused_loss"] == "yes",
    "several GPUs": lambda r: int(r["gpus"]) > 1,
    "as in DeepSpeed": lambda r: not any(word in r["note"] for word in APART),
    "all": lambda r: True,
}
APART = ("FSDP", "k-bit", "LitGPT", "longest context")
WRONG = {"Llama-2-70b-hf LoRA 16 nf4 2 x A100-80 Z3 fp16 4x4096 recomputed"}
"""A wrong "fits" under FSDP: half of these tokens took 43 GiB there, but 20 GiB less would be expected from one GPU."""


def rates_for(row: Row) -> Rates:
    gpus = int(row["gpus"])
    machine = named_machine(f"{min(gpus, 8)}x{row['gpu']}", max(gpus // 8, 1), "ib-400", 1 << 40)
    return rates_of(machine, tuple(range(min(gpus, 8))), max(gpus // 8, 1), half=row["precision"] == "fp16", attention=row["attention"])


def memory_errors() -> list[tuple[Row, float]]:
    found = []
    for row in (row for row in ROWS if row["measured_gib"]):
        need = of_row(row)
        ours = need.allocated or 0
        if row["metric"] != "allocated":
            ours = (need.gpu.bytes or 0) - (OUTSIDE if row["metric"] == "reserved" else 0)
        found.append((row, (ours or 0) / GIB / float(row["measured_gib"]) - 1))
    return found


def speed_errors() -> list[tuple[Row, float]]:
    found = []
    for row in (row for row in ROWS if row["tokens_per_second_per_gpu"]):
        speed = of_row(row, rates_for(row)).speed
        assert speed is not None
        found.append((row, speed.tokens / int(row["gpus"]) / float(row["tokens_per_second_per_gpu"]) - 1))
    return found


def summary(what: str, errors: Sequence[tuple[Row, float]]) -> list[float]:
    for row, error in errors:
        print(f"{name_of(row):<84} {error:+7.1%}")
    for kind, belongs in KINDS.items():
        if sizes := sorted(((abs(error), error, name_of(row)) for row, error in errors if belongs(row))):
            signed = median(error for _, error, _ in sizes)
            print(
                f"{what} {kind:<20} {len(sizes):3} rows  median {median(s for s, *_ in sizes):5.1%} (signed {signed:+6.1%})  "
                f"p90 {sizes[int(0.9 * len(sizes))][0]:5.1%}  worst {sizes[-1][1]:+6.1%} ({sizes[-1][2]})"
            )
    return sorted(abs(error) for row, error in errors if KINDS["as in DeepSpeed"](row))


def test_memory() -> None:
    sizes = summary("memory", memory_errors())
    assert median(sizes) < 0.06 and sizes[int(0.9 * len(sizes))] < 0.19


def test_speed() -> None:
    sizes = summary("speed", speed_errors())
    assert median(sizes) < 0.09 and sizes[int(0.9 * len(sizes))] < 0.3


def test_no_row_that_ran_out_of_memory_is_forecast_to_fit() -> None:
    wrong, tight = [], 0
    for row in (row for row in ROWS if row["metric"] != "speed"):
        verdict = of_row(row).gpu.verdict
        tight += verdict == "tight"
        if verdict != "tight" and (verdict == "too big") == (row["fits"] == "yes"):
            wrong.append((name_of(row), verdict))
    print(len(ROWS), "rows,", tight, "tight, wrong:", *wrong)
    assert {name for name, verdict in wrong if verdict == "fits"} <= WRONG
    assert len(wrong) <= 1
