"""What one edit costs: Plan -> rendered lines -> checks -> changed lines, on a Plan with a preview of about a hundred lines.

    python tests/bench/bench_edit.py

The claim: under 5 ms at the median, a third of a frame. Prints milliseconds, and the ratio to parsing the same JSON with the json module.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from dstui.check import check
from dstui.machine.snapshot import Host, Machine
from dstui.plan import Plan, load
from dstui.render.jsontext import json_lines, json_text

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
)  # unknown keys, which cost the checks most
EDITS = 200


def edit(plan: Plan, before: list[str], stage: int) -> tuple[Plan, list[str]]:
    """All that an edit does besides painting."""
    plan = plan.set("deepspeed.zero_optimization.stage", stage)
    after = [line.text for line in json_lines(plan.deepspeed)]
    check(plan, MACHINE)
    _changed = [number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    return plan, after


def main() -> int:
    """Measure; 1 where the claim does not hold."""
    plan = load(HEAD + WIDE)
    lines = [line.text for line in json_lines(plan.deepspeed)]
    times, floor = [], []
    text = json_text(plan.deepspeed)
    for number in range(EDITS):
        start = time.perf_counter()
        plan, lines = edit(plan, lines, number % 3 + 1)
        times.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        json.loads(text)
        floor.append((time.perf_counter() - start) * 1e3)
    median = statistics.median(times)
    print(f"{len(lines)} lines of preview: median {median:.2f} ms, p95 {sorted(times)[int(0.95 * EDITS)]:.2f} ms per edit")
    print(f"{median / statistics.median(floor):.0f}x json.loads of the same configuration")
    return 0 if median < 5 else 1


if __name__ == "__main__":
    sys.exit(main())
