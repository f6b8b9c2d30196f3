"""Measure what DeepSpeed holds: train a small model on CPU ranks and count the bytes of every tensor, by part and moment.

Run as a program. It imports torch, deepspeed and transformers once, prints `{"ready": true}`, and answers each line of standard input

    {"config": {ds_config}, "model": {config.json}, "world_size": 2, "steps": 3, "batch": 1, "sequence": 64, "checkpointing": false}

with `{"ranks": [{"initialized": {PART: bytes}, "backward": {…}, "stepped": {…}, "params": n, "peaks": {MOMENT: bytes}}], "error": ""}`.
Parts are counted from the tensors that are alive, each storage once; peaks are those of torch's CPU allocator, as its profiler reports
them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # DeepSpeed decorates its Muon with torch.compile, which nothing here calls
DEADLINE = 500.0
"""Seconds allowed for one measurement: the first may have to compile an optimizer."""
MOMENTS = ("build", "initialize", "forward and backward", "optimizer step")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tensors_of(value, depth=0):
    """Yield every tensor in nested containers."""
    import torch

    if torch.is_tensor(value):
        yield value
    elif depth < 6:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple, set)):
            for one in value:
                yield from tensors_of(one, depth + 1)


PARTS = {
    "master_weights": (
        "single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "fp32_groups_flat", "fp32_groups",
    ),
    "gradients": (
        "averaged_gradients", "grad_partitions_flat_buffer", "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition",
        "fp32_groups_gradients_flat", "accumulated_grads_in_cpu", "all_grad_tensors", "fp32_groups_gradient_flat_partition",
    ),
    "reduce_buckets": ("ipg_buckets", "_DeepSpeedZeroOptimizer_Stage3__ipg_bucket_flat_buffer", "ipg_buffer"),
    "weights_to_copy": ("param_buffer_of_bit16_for_cpu_offload_groups",),
    "offload_buffers": ("temp_grad_buffer_for_gpu_offload", "temp_grad_buffer_for_cpu_offload"),
}  # fmt: skip


def census(engine):
    """Return bytes by part; a storage counts for the first part that refers to it."""
    import torch

    gc.collect()
    seen, sums = set(), {}

    def count(part, tensors):
        for tensor in tensors:
            if tensor.device.type != "cpu" or tensor.numel() == 0:
                continue
            storage = tensor.untyped_storage()
            if storage.data_ptr() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                sums[part] = sums.get(part, 0) + storage.nbytes()

    outer, params = engine.optimizer, list(engine.module.parameters())
    held = [getattr(p, "ds_tensor", None) for p in params]
    count("weights", [t for t in [*held, *[p.data for p in params], *tensors_of(getattr(outer, "bit16_groups_flat", []))] if t is not None])
    count("secondary_weights", [t for p in params if (t := getattr(p, "ds_secondary_tensor", None)) is not None])
    for part, names in PARTS.items():
        for name in names:
            value = getattr(outer, name, None)
            if name == "ipg_buckets" and isinstance(value, dict):
                value = [getattr(bucket, "buffer", None) for bucket in value.values()]
            count(part, tensors_of(value))
    inner = getattr(outer, "optimizer", outer)
    count("optimizer_states", [t for state in inner.state.values() for t in tensors_of(state)])
    count("gradients", [p.grad for p in params if p.grad is not None])
    count("gradients", [p.grad for group in inner.param_groups for p in group["params"] if p.grad is not None])
    everything = []
    for thing in gc.get_objects():
        with contextlib.suppress(ReferenceError):
            if isinstance(thing, torch.Tensor):
                everything.append(thing)
    count("other", everything)
    return sums


def peaks(profile):
    """Return the peak of the allocator in each moment.

    The profiler does not see what gloo's own threads free: an address that is allocated again was freed by someone.
    """
    from torch._C._profiler import _EventType

    marks, memory, left = [], [], list(profile.profiler.kineto_results.experimental_event_tree())
    while left:
        event = left.pop()
        left += event.children
        if event.typed[0] == _EventType.Allocation:
            memory.append((event.start_time_ns, event.typed[1].ptr, event.typed[1].alloc_size))
        elif event.name.startswith("moment: "):
            marks.append((event.start_time_ns, event.name.removeprefix("moment: ")))
    memory.sort()
    marks.sort()
    most, held, now, at = {}, {}, 0, 0
    for when, address, change in memory:
        while at < len(marks) and marks[at][0] <= when:
            at += 1
        now -= held.pop(address, 0)
        if change > 0:
            held[address] = change
            now += change
        name = marks[at - 1][1] if at else "before"
        most[name] = max(most.get(name, 0), now)
    return most


def train(request):
    """Train as a rank and return what it held."""
    import deepspeed
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    def moment(name):
        with record_function(f"moment: {name}"):
            pass

    torch.manual_seed(0)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    shape = dict(request["model"])
    config = CONFIG_MAPPING[shape.pop("model_type")](**shape)
    config._attn_implementation = request.get("attention", "sdpa")
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}
    kind = next((dtype for name, dtype in half.items() if request["config"].get(name, {}).get("enabled")), torch.float32)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        moment("build")
        model = AutoModelForCausalLM.from_config(config, dtype=kind)
        if request.get("checkpointing"):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
        for name, parameter in model.named_parameters():
            if any(word in name for word in request.get("frozen", ())):
                parameter.requires_grad = False
        count = sum(p.numel() for p in model.parameters())
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        own = None
        if request.get("optimizer"):
            own = getattr(torch.optim, request["optimizer"])([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        moment("initialize")
        engine, *_ = deepspeed.initialize(
            model=model, config=request["config"], model_parameters=[p for p in model.parameters() if p.requires_grad], optimizer=own
        )
        del model
        moment("count")
        answer = {"params": count, "trained": trained, "initialized": census(engine)}
        batch = torch.randint(0, config.vocab_size, (request.get("batch", 1), request.get("sequence", 32)))
        for number in range(request.get("steps", 2)):
            moment("forward and backward")
            loss = engine(input_ids=batch, labels=batch).loss
            engine.backward(loss)
            loss = None
            if not number:
                moment("count")
                answer["backward"] = census(engine)
            moment("optimizer step")
            engine.step()
        moment("count")
        answer["stepped"] = census(engine)
    answer["peaks"] = peaks(profiled)
    return answer


def rank(number, ranks, port, request, pipe):
    place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": ranks, "LOCAL_SIZE": ranks, "CROSS_RANK": 0, "CROSS_SIZE": 1}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        answer = train(request)
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:2000], "where": traceback.format_exc()[-3000:]}
    with os.fdopen(pipe, "w") as out:
        out.write(json.dumps(answer) + "\n")
    os._exit(0)


def too_late(_signal, _frame):
    raise TimeoutError(f"no answer in {DEADLINE:.0f} s")


def measure(request):
    """Fork the ranks, collect their results, and kill any that remain."""
    port, children = free_port(), []
    for number in range(request.get("world_size", 2)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.close(reader)
            rank(number, request.get("world_size", 2), port, request, writer)
        os.close(writer)
        children.append((child, reader))
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(int(DEADLINE))
    answers = []
    try:
        for _child, reader in children:
            with os.fdopen(reader) as text:
                answers.append(json.loads(text.readline() or '{"error": "the rank died"}'))
    except TimeoutError as error:
        answers.append({"error": str(error)})
    finally:
        signal.alarm(0)
        for child, _reader in children:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for left in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*"):
            left.unlink(missing_ok=True)
    return {
        "ranks": answers,
        "error": next((a["error"] for a in answers if a.get("error")), ""),
        "where": next((a["where"] for a in answers if a.get("where")), ""),
    }


def main():
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    gc.disable()  # an import creates no garbage, and searching for it takes a fifth of the time
    import deepspeed
    import deepspeed.ops
    import torch
    import transformers

    deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
    _ = transformers.GPT2LMHeadModel, transformers.LlamaForCausalLM, torch.optim.AdamW
    importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")
    importlib.import_module("torch._inductor")  # the profiler needs it
    gc.enable()
    gc.collect()
    gc.freeze()  # a rank's census should only visit what the rank has made
    output.write(
        json.dumps(
            {"ready": True, "deepspeed": deepspeed.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
        )
        + "\n"
    )
    for line in sys.stdin:
        if line.strip():
            start = time.monotonic()
            answer = measure(json.loads(line))
            output.write(json.dumps({**answer, "seconds": round(time.monotonic() - start, 1)}) + "\n")


if __name__ == "__main__":
    main()
