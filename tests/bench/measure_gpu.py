"""Compare the forecast to `torch.cuda.max_memory_allocated` for a grid of models and plans; needs a GPU.

    python tests/bench/measure_gpu.py [--gpus N] [--out measured_gpu.csv]

Each plan is launched by DeepSpeed's launcher in new processes (fresh contexts), trains three steps on random tokens with random weights,
and rank 0 reports the peaks. A run that is out of memory is a row too. Prints forecast and measurement with the median and the worst
error, and every plan called "fits" that ran out of memory; keep the table in the repository with device, versions and date.

No GPU was available when this was written: the table of CPU ranks (tests/long/test_forecast_ranks.py) replaces it so far.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "forecast"))
MODELS = {
    "openai-community/gpt2-large": 1024,
    "meta-llama/Llama-3.2-1B": 2048,
    "Qwen/Qwen2.5-1.5B": 2048,
    "meta-llama/Llama-3.2-3B": 2048,
    "meta-llama/Llama-3.1-8B": 2048,
}
"""Presets and the sequence they are trained with; built from their configurations, without downloading weights."""
ZEROS: tuple[dict[str, Any], ...] = (
    {"stage": 0},
    {"stage": 1},
    {"stage": 2},
    {"stage": 3},
    {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
)
COLUMNS = ("model", "plan", "gpus", "verdict", "forecast_gib", "measured_gib", "reserved_gib", "error", "device", "torch", "deepspeed")
GIB = 1 << 30


def grid() -> Iterator[tuple[str, dict[str, Any], bool, int]]:
    """Yield model, ZeRO section, checkpointing, micro-batch."""
    for model in MODELS:
        for zero in ZEROS:
            yield model, zero, True, 2
            if zero["stage"] in (2, 3) and len(zero) == 1:
                yield model, zero, False, 1


def config_of(zero: dict[str, Any], micro: int) -> dict[str, Any]:
    config = {"train_micro_batch_size_per_gpu": micro, "bf16": {"enabled": True}, "steps_per_print": 10**9}
    return {**config, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": zero}


def rank(request: dict[str, Any], out: Path) -> None:
    """Run three steps as a rank; rank 0 writes the measurements."""
    import deepspeed
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    shape = dict(request["shape"])
    config = CONFIG_MAPPING[shape.pop("model_type")](**shape)
    config.use_cache = False
    deepspeed.init_distributed()
    answer: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "deepspeed": deepspeed.__version__}
    try:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        if request["checkpointing"]:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        engine, *_ = deepspeed.initialize(model=model, config=request["config"], model_parameters=model.parameters())
        batch = torch.randint(0, config.vocab_size, (request["micro"], request["sequence"]), device=engine.device)
        for _ in range(3):
            loss = engine(input_ids=batch, labels=batch).loss
            engine.backward(loss)
            engine.step()
        answer |= {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    except torch.OutOfMemoryError as error:
        answer["error"] = str(error)[:300]
    if torch.distributed.get_rank() == 0:
        out.write_text(json.dumps(answer))


def measured(request: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Measure one plan in new processes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answer.json"
        launch = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", str(gpus), __file__]
        subprocess.run([*launch, "--one", json.dumps(request), "--to", str(out)], check=False, capture_output=True, timeout=900)
        answer: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"error": "the job ended without an answer"}
        return answer


def main() -> int:
    """Measure the grid; return 2 without a GPU, 1 if a plan called "fits" ran out of memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--out", type=Path, default=Path("measured_gpu.csv"))
    parser.add_argument("--one")
    parser.add_argument("--to", type=Path)
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    if args.one:
        rank(json.loads(args.one), args.to)
        return 0
    from targets import plan

    from dstui.forecast.forecast import forecast
    from dstui.forecast.model import facts_of_config
    from dstui.forecast.presets import presets
    from dstui.machine.probe import probe

    machine = probe()
    usable = tuple(gpu for gpu in machine.gpus if gpu.problem is None)[: args.gpus]
    if not usable:
        print("no GPU here: nothing was measured")
        return 2
    machine, rows, errors, wrong = replace(machine, gpus=usable), [], [], []
    for model, zero, checkpointing, micro in grid():
        shape, sequence = presets()[model], MODELS[model]
        request = {"shape": shape, "config": config_of(zero, micro), "checkpointing": checkpointing, "micro": micro, "sequence": sequence}
        answer = measured(request, len(usable))
        given = plan(model, micro=micro, sequence=sequence, model__activation_checkpointing=checkpointing)
        found = forecast(given.set("deepspeed.zero_optimization", zero), facts_of_config(shape), machine)
        name = f"{json.dumps(zero)} micro {micro}{' recomputed' if checkpointing else ''}"
        ours, real = found.allocated or 0, answer.get("allocated")
        error = ours / real - 1 if real else None
        rows.append((model, name, len(usable), found.verdict, ours / GIB, real and real / GIB, answer.get("reserved", 0) / GIB, error))
        rows[-1] += (answer.get("device"), answer.get("torch"), answer.get("deepspeed"))
        print(
            f"{model:<30} {name:<90} {found.verdict:<8} {ours / GIB:7.2f} "
            + (f"{real / GIB:7.2f} {error:+.1%}" if real and error is not None else answer["error"]),
            flush=True,
        )
        errors += [abs(error)] if error is not None else []
        wrong += [f"{model} {name}"] if found.verdict == "fits" and not real else []
    with args.out.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    print(
        f"{len(errors)} runs: median {median(errors or [0]):.1%}, worst {max(errors, default=0):.1%}; called fits but did not run: {wrong or 'none'}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
