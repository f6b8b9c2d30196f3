"""Published throughput, half of it for fitting: `python tests/forecast/speed_rows.py` prints both halves.

The rows are in published_speed.csv with their URLs. A row is for fitting if the CRC of its text is even, so that nobody chooses. The
constants of `dstui.forecast.rates.REACH` and `dstui.forecast.speed` were fitted to those rows of llm-foundry, and to the two whose note
says so. What a row's note names of its software (FlashAttention's release, torch.compile) is set in its Plan.

"Not fitted" does not mean blind: attention on Hopper and Blackwell (0.55), the CPU optimizer and the range were chosen with the rows of
ml-engineering and of the gist in view, the effect of fused kernels with torchtitan's rows for H100 and Hugging Face's. The rate of
FlashAttention-2 is from its paper and from ALST's steps (tests/long/blind_rows_2.csv); MPT, to which the rest was fitted, computes attention
with ALiBi by kernels of 2023. Blind are fms-fsdp's rows of 34B and those of DeepSpeed on Azure.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
model: {{source: x, sequence_length: {sequence}, activation_checkpointing: {again}, attention: {attention}, fused_loss: {fused}, compiled: {compiled}, recompute: {recompute}}}
deepspeed:
  train_micro_batch_size_per_gpu: {micro_batch}
  gradient_accumulation_steps: {accumulation}
  bf16: {{enabled: true}}
  zero_optimization: {{stage: {stage}{offload}}}
  optimizer: {{type: AdamW, params: {{lr: 1e-4}}}}
"""


KERNELS = {"FlashAttention-3": "flash3", "eager": "eager"}
"""Name in a row's note -> name in a Plan."""


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
    if name.startswith("gpt:"):
        hidden, layers, words, heads = map(int, name.partition(":")[2].split(":"))
        config = {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": words, "n_positions": 2048}
        return facts_of_config(config)
    hidden, layers, words, ffn, heads, keys = map(int, name.partition(":")[2].split(":"))
    config = {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": words, "intermediate_size": ffn}
    return facts_of_config({**config, "num_attention_heads": heads, "num_key_value_heads": keys})


def judged(row: dict[str, str]) -> Judged:
    gpus = int(row["gpus"])
    nodes = max(gpus // 8, 1)
    machine = named_machine(f"{gpus // nodes}x{row['gpu']}", nodes, f"ib-{row['gbps']}", 2 << 40)
    offload = ", offload_optimizer: {device: cpu}" if row["optimizer_offload"] == "cpu" else ""
    again, fused = str(row["checkpointing"] != "no").lower(), str(row["kernels"] == "liger").lower()
    attention = next((kind for name, kind in KERNELS.items() if name in row["note"]), "flash")
    compiled = str("torch.compile" in row["note"]).lower()
    recompute = "selective" if row["checkpointing"] == "selective" else "full"
    plan = load(PLAN.format(**row, again=again, fused=fused, offload=offload, attention=attention, compiled=compiled, recompute=recompute))
    return Judged(row, forecast(placed(plan, machine, nodes), facts_of(row["model"], int(row["sequence"])), machine))


def orders(rows: Sequence[Judged]) -> tuple[int, int]:
    """Return the number of pairs that differ by more than 5 %, and how many of them are in the right order."""
    apart = [(a, b) for a, b in combinations(rows, 2) if abs(math.log(a.theirs / b.theirs)) > 0.05]
    return len(apart), sum((a.ours > b.ours) == (a.theirs > b.theirs) for a, b in apart)


def summary(name: str, rows: Sequence[Judged]) -> str:
    errors = sorted(abs(j.error) for j in rows)
    worst = max(rows, key=lambda j: abs(j.error))
    pairs, right = orders(rows)
    named = f"{worst.row['model']} {worst.row['gpus']} x {worst.row['gpu']} {worst.row['sequence']}"
    share = f"{right / pairs:.1%}" if pairs else "-"
    inside = sum(
        j.found.speed is not None and j.found.speed.range[0] <= j.theirs * int(j.row["gpus"]) <= j.found.speed.range[1] for j in rows
    )
    return (
        f"{name:<34} {len(rows):3} rows  median {median(errors):5.1%}  p90 {errors[int(0.9 * len(errors))]:5.1%}  "
        f"worst {worst.error:+6.1%} ({named})  pairs {share}  in range {inside / len(rows):.0%}"
    )


OLD = "DeepSpeed of 2021"
"""It gathered each parameter by a separate collective. Listed apart, since no current Plan works like that."""


def source_of(row: dict[str, str]) -> str:
    """Return the project that published the figures; for llm-foundry, with the half."""
    url = row["source"]
    name = OLD if OLD in row["note"] else url.split("/")[4] if "github.com" in url and "gist" not in url else url.split("/")[2]
    half = "fitted" if is_for_fitting(row) else "held out"
    return f"{name}, {half}" if name == "llm-foundry" else name


def groups(rows: Iterable[Judged]) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = {}
    for j in rows:
        found.setdefault(source_of(j.row), []).append(j)
    return found


FEATURES: Mapping[str, Callable[[dict[str, str]], bool]] = {
    "DeepSpeed": lambda r: "DeepSpeed" in r["note"] or "accelerate" in r["note"] or "ml-engineering" in r["source"],
    "16k tokens and more": lambda r: int(r["sequence"]) >= 16_384,
    "recomputed": lambda r: r["checkpointing"] != "no",
    "optimizer in RAM": lambda r: r["optimizer_offload"] != "none",
    "several nodes": lambda r: int(r["gpus"]) > 8,
    "A100, A800": lambda r: r["gpu"].startswith("A"),
    "H100, H200, GH200": lambda r: "H" in r["gpu"],
    "B200": lambda r: r["gpu"] == "B200",
}


def not_fitted(rows: Iterable[Judged]) -> list[Judged]:
    """Return the rows that no constant was fitted to, without those of old releases."""
    return [j for j in rows if source_of(j.row) not in ("llm-foundry, fitted", OLD) and "fitted" not in j.row["note"]]


def main() -> None:
    rows = [judged(row) for row in ROWS]
    for j in rows:
        r = j.row
        mark = "fit" if is_for_fitting(r) and r["model"].startswith("mpt") else "   "
        way = f"Z{r['stage']} {r['micro_batch']}x{r['sequence']} x{r['accumulation']}{' again' if r['checkpointing'] == 'yes' else ''}"
        print(f"{mark} {r['model']:<34} {r['gpus']:>3} x {r['gpu']:<8} {way:<24} {j.theirs:8.0f} {j.ours:8.0f} {j.error:+6.1%}")
    for name, some in groups(rows).items():
        print(summary(name, some))
    rest = not_fitted(rows)
    print(summary("all not fitted", rest))
    for name, has in FEATURES.items():
        print(summary(f"  {name}", [j for j in rest if has(j.row)]))


if __name__ == "__main__":
    main()
