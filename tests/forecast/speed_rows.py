"""Throughput that others published, half of it for fitting: `python tests/forecast/speed_rows.py` prints both halves apart.

The rows are in published_speed.csv with their addresses. A row is for fitting where the CRC of its text is even, so that nobody chooses;
the constants of `dstui.forecast.rates.REACH` and `dstui.forecast.speed` were fitted to those rows of llm-foundry and to no other.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from dstui.forecast.forecast import Forecast, forecast
from dstui.forecast.hardware import named_machine, placed
from dstui.forecast.model import ModelFacts, facts_of_config
from dstui.forecast.presets import presets
from dstui.plan import load

ROWS = list(csv.DictReader((Path(__file__).parent / "published_speed.csv").open()))
MPT = {
    "1b": (2048, 24, 16),
    "3b": (2560, 32, 20),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 48, 56),
    "70b": (8192, 80, 64),
}
PLAN = """\
version: 1
job: {{script: t.py}}
model: {{source: x, sequence_length: {sequence}, activation_checkpointing: {again}, attention: flash, fused_loss: {fused}}}
deepspeed:
  train_micro_batch_size_per_gpu: {micro_batch}
  gradient_accumulation_steps: {accumulation}
  bf16: {{enabled: true}}
  zero_optimization: {{stage: {stage}{offload}}}
  optimizer: {{type: AdamW, params: {{lr: 1e-4}}}}
"""


@dataclass(frozen=True)
class Judged:
    """A row with its forecast."""

    row: dict[str, str]
    found: Forecast

    @property
    def ours(self) -> float:
        assert self.found.speed
        return self.found.speed.tokens / int(self.row["gpus"])

    @property
    def theirs(self) -> float:
        return float(self.row["tokens_per_second_per_gpu"])

    @property
    def error(self) -> float:
        return self.ours / self.theirs - 1


def is_for_fitting(row: dict[str, str]) -> bool:
    return zlib.crc32("|".join(list(row.values())[1:12]).encode()) % 2 == 0


def facts_of(name: str, sequence: int) -> ModelFacts:
    if name in presets():
        return facts_of_config(presets()[name])
    if name.startswith("mpt-"):
        hidden, layers, heads = MPT[name.removeprefix("mpt-")]
        config: dict[str, Any] = {"model_type": "mpt", "d_model": hidden, "n_layers": layers, "n_heads": heads, "expansion_ratio": 4}
        return facts_of_config({**config, "vocab_size": 50368, "max_seq_len": sequence})
    hidden, layers, words, ffn, heads, keys = map(int, name.partition(":")[2].split(":"))
    config = {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": words, "intermediate_size": ffn}
    return facts_of_config({**config, "num_attention_heads": heads, "num_key_value_heads": keys})


def judged(row: dict[str, str]) -> Judged:
    gpus = int(row["gpus"])
    nodes = max(gpus // 8, 1)
    machine = named_machine(f"{gpus // nodes}x{row['gpu']}", nodes, f"ib-{row['gbps']}", 2 << 40)
    offload = ", offload_optimizer: {device: cpu}" if row["optimizer_offload"] == "cpu" else ""
    again, fused = str(row["checkpointing"] == "yes").lower(), str(row["kernels"] == "liger").lower()
    plan = load(PLAN.format(**row, again=again, fused=fused, offload=offload))
    return Judged(row, forecast(placed(plan, machine, nodes), facts_of(row["model"], int(row["sequence"])), machine))


def orders(rows: Sequence[Judged]) -> tuple[int, int]:
    """Return how many pairs that differ by more than 5 % there are, and how many of them are in the right order."""
    apart = [(a, b) for a, b in combinations(rows, 2) if abs(math.log(a.theirs / b.theirs)) > 0.05]
    return len(apart), sum((a.ours > b.ours) == (a.theirs > b.theirs) for a, b in apart)


def summary(name: str, rows: Sequence[Judged]) -> str:
    errors = sorted(abs(j.error) for j in rows)
    worst = max(rows, key=lambda j: abs(j.error))
    pairs, right = orders(rows)
    named = f"{worst.row['model']} {worst.row['gpus']} x {worst.row['gpu']} {worst.row['sequence']}"
    share = f"{right / pairs:.1%}" if pairs else "-"
    return (
        f"{name:<34} {len(rows):3} rows  median {median(errors):5.1%}  p90 {errors[int(0.9 * len(errors))]:5.1%}  "
        f"worst {worst.error:+6.1%} ({named})  pairs {share}"
    )


def groups(rows: Iterable[Judged]) -> Iterator[tuple[str, list[Judged]]]:
    every = list(rows)
    for name in dict.fromkeys(j.row["source"] for j in every):
        some = [j for j in every if j.row["source"] == name]
        short = name.split("/")[4] if "github.com" in name and "gist" not in name else name.split("/")[2]
        if short == "llm-foundry":
            yield f"{short}, fitted", [j for j in some if is_for_fitting(j.row)]
            yield f"{short}, held out", [j for j in some if not is_for_fitting(j.row)]
        else:
            yield short, some


def main() -> None:
    rows = [judged(row) for row in ROWS]
    for j in rows:
        r = j.row
        mark = "fit" if is_for_fitting(r) and r["model"].startswith("mpt") else "   "
        way = f"Z{r['stage']} {r['micro_batch']}x{r['sequence']} x{r['accumulation']}{' again' if r['checkpointing'] == 'yes' else ''}"
        print(f"{mark} {r['model']:<34} {r['gpus']:>3} x {r['gpu']:<8} {way:<24} {j.theirs:8.0f} {j.ours:8.0f} {j.error:+6.1%}")
    for name, some in groups(rows):
        print(summary(name, some))
    print(summary("all", rows))


if __name__ == "__main__":
    main()
