"""Cost of an edit: Plan -> rendered lines -> checks -> changed lines, with a preview of about a hundred lines.

    python tests/bench/bench_edit.py

With a model it includes the forecast, a misfit with the closest plan that fits, and the figures of the ZeRO step. The claims: under 5 ms
at the median, a third of a frame; with a model under 8 ms, whether it fits, something close fits, or nothing does. Prints milliseconds of
CPU time, which a busy machine does not change, and the ratio to parsing the same JSON with the json module.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "forecast"))
from targets import EIGHT_H100, ONE_4090

from dstui.assess import Facts, assess
from dstui.forecast.model import ModelFacts, facts_of_config
from dstui.forecast.presets import presets
from dstui.machine.snapshot import Host, Machine
from dstui.plan import Plan, load
from dstui.render.jsontext import json_lines, json_text
from dstui.render.target import Target
from dstui.tui.session.forecasts import Outlook

MACHINE = Machine(source="a recorded machine without a GPU", host=Host(cpus_usable=8, memory_total=64 << 30, memory_limit=None))
HEAD = """\
version: 1
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}   # the script
deepspeed:
  train_micro_batch_size_per_gpu: 4    # per rank
  gradient_accumulation_steps: 8
  bf16: {enabled: true}
  zero_optimization:
    stage: 2     # gradients too
    reduce_bucket_size: 5e8
    offload_optimizer:
      device: cpu
  optimizer: {type: AdamW, params: {lr: 1e-4, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1}}
  scheduler: {type: WarmupLR, params: {warmup_min_lr: 0, warmup_max_lr: 1e-4, warmup_num_steps: 100}}
  flops_profiler: {enabled: false, profile_step: 1, module_depth: -1, top_modules: 1, detailed: true}
  activation_checkpointing: {partition_activations: false, cpu_checkpointing: false}
  comms_logger: {enabled: false, verbose: false, prof_all: true, debug: false}
  csv_monitor: {enabled: false, output_path: logs, job_name: demo}
"""
WIDE = "".join(
    f"  tensorboard{i}: {{enabled: false, output_path: logs, job_name: demo{i}}}\n" for i in range(9)
)  # unknown keys, which are the most expensive to check
EDITS = 200


def edit(plan: Plan, before: list[str], stage: int, machine: Machine, facts: ModelFacts | None) -> tuple[Plan, list[str]]:
    """Do everything that an edit does except painting."""
    plan = plan.set("deepspeed.zero_optimization.stage", stage)
    after = [line.text for line in json_lines(plan.deepspeed)]
    target, known = Target(plan, machine), Facts(models=facts)
    assessment = assess(target, known)
    if assessment.forecast is not None:
        assert Outlook(target, known, assessment.forecast).choices
    _changed = [number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    return plan, after


def measured(text: str, machine: Machine, facts: ModelFacts | None) -> list[float]:
    """Return the milliseconds of each of many edits."""
    plan, times = load(text), []
    lines = [line.text for line in json_lines(plan.deepspeed)]
    for number in range(EDITS):
        start = time.process_time()
        plan, lines = edit(plan, lines, number % 3 + 1, machine, facts)
        times.append((time.process_time() - start) * 1e3)
    return sorted(times)


def main() -> int:
    """Measure; return 1 if a claim does not hold."""
    config = json_text(load(HEAD + WIDE).deepspeed)
    floor = []
    for _ in range(EDITS):
        start = time.process_time()
        json.loads(config)
        floor.append((time.process_time() - start) * 1e3)
    seven, seventy = (facts_of_config(presets()[f"meta-llama/Llama-2-{size}-hf"]) for size in ("7b", "70b"))
    model = "model: {source: a, sequence_length: 4096}\n"
    cases = {
        "without a model": (HEAD + WIDE, MACHINE, None, 5.0),
        "a model that fits": (HEAD + WIDE + model, EIGHT_H100, seven, 8.0),
        "one that does not, with the nearest plan": (HEAD.replace("gpu: 4 ", "gpu: 96 ") + WIDE + model, EIGHT_H100, seven, 8.0),
        "one for which nothing fits": (HEAD.replace("gpu: 4 ", "gpu: 96 ") + WIDE + model, ONE_4090, seventy, 8.0),
    }
    good = True
    for name, (text, machine, facts, limit) in cases.items():
        times = measured(text, machine, facts)
        median = statistics.median(times)
        good = good and median < limit
        print(f"{name:<42} median {median:5.2f} ms, p95 {times[int(0.95 * EDITS)]:5.2f} ms per edit  (claim: under {limit:g})")
    print(f"json.loads of the same configuration: {statistics.median(floor):.3f} ms")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
