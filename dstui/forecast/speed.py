"""The seconds of an optimizer step and their bottleneck: FLOPs, collectives, copies to RAM, the CPU's optimizer, disks, Python.

step = accumulation x (the slowest of what overlaps + a part of the rest) + costs once per step + the optimizer. The costs of the batch
(`Work`) and of ZeRO (`Traffic`) are separate, so that a search can combine each of one with each of the other.
"""

from __future__ import annotations

from typing import NamedTuple

from dstui.forecast.activations import loss_moves, moved_in_layers
from dstui.forecast.architecture import TensorShape
from dstui.forecast.model import Counts
from dstui.forecast.pipeline import seconds_of
from dstui.forecast.rates import ADAPTED_PASS, COMPILED_PASS, HOOK_SECONDS, PASS_SECONDS, STALL_SECONDS, Rates
from dstui.forecast.setup import Setup
from dstui.forecast.states import optimizer_bytes

STARTS = 2.6
"""The number of tokens at which a micro-batch reaches half of the speed of a large one, in units of the operations that a GPU computes in
the time in which it moves a byte of its memory: a product of few tokens waits for its weights. It is 350 tokens on A100-80 and 610 on H100,
between the best for the rows of each that are for fitting (100 to 300, 700: tests/forecast/speed_rows.py)."""
MEMORY_SHARE = 0.8
"""The share of the data sheet's memory bandwidth that kernels reach if they only move bytes."""
AGAIN = {"full": 1.0, "selective": 0.4, "attention": 0.0}
"""The share of the matrix products of the forward pass that recomputation repeats. Selective: every second one, of Llama's the smaller
half; all small kernels run again, the attention does not."""
ATTENTION_FORWARD, ATTENTION_BACKWARD = 2, 5
"""Operations of causal attention per token, position and element of the heads: two products in the forward pass, five in the backward pass.
"""
EAGER_FORWARD, EAGER_BACKWARD = 2, 4
"""Matrix products of attention without a fused kernel, which keeps the probabilities instead of computing them again."""
FUSED_ATTENTION = 0.38
"""The share of the best matrix multiplication that fused attention reaches if its rate is unknown."""
UNALIGNED = 1.4
"""The slowdown of the head's products in 16 bits if the vocabulary is no multiple of 8, as GPT-2's 50257: tensor cores want rows of 16
bytes (NVIDIA, Matrix Multiplication Background, 2.2). With 50304 rows nanoGPT's steps became 25 % shorter in 2023, and build-nanogpt's 4 %
in 2024: 1.8 and 1.1 times for the head; this is between them."""
ALIBI = 1.7
"""The slowdown of fused attention with ALiBi's bias, which has kernels of its own (MPT in Triton, llm-foundry's tables of 2023)."""
HOP_SECONDS = 3.2e-6
"""The latency of a collective per further rank of its ring, which no compute hides."""
EXCHANGE_SECONDS = 2.0e-3
"""The seconds that an exchange of tensor parallelism takes beside those of its bytes, because every rank waits for the last: the geometric
mean of five pages. 0.7 ms in Megatron's 22B (Korthikanti et al., arxiv.org/abs/2205.05198, table 5); with DeepSpeed 1.3 (1.3B on
8 x V100), 2.7 (BLOOM on A100), 3.4 (GPT-NeoX-20B) and 4.3 (a DGX-2), all in tests/long. AutoTP on H100 loses 2.5 to 5 (DeepSpeed #8064)."""
SPLIT_NORMS_SECONDS = 0.3e-3
"""The same if the norms are split too (--sequence-parallel): the exchanges of the backward pass run beside the products for the weights'
gradients (megatron/core/tensor_parallel/layers.py). The geometric mean of four pages of FlagPerf is 0.27 ms (tests/long/test_blind.py)."""
HIDDEN = 0.75
"""The share of the smaller of compute and communication that runs beside the larger if overlap_comm is on."""
BOUND = 1.3
"""The factor by which the CPUs' optimizer is faster if each rank is bound to cores of its own. It is at least that of the whole step, which
took 2383 ms instead of 3084 for Qwen2.5-3B on 2 x A100-40 (github.com/deepspeedai/DeepSpeed/pull/7474)."""
EXPERT_SECONDS = 1.6e-3
"""The seconds in which stage 3 gathers one linear layer of one expert, which nothing hides. Before transformers 5 each expert has three:
91.2 s for a step of Qwen3-30B-A3B on 2 x 8 A800 (ms-swift, docs, Megatron-SWIFT/Quick-start). Leaf modules avoid it."""
ZENFLOW_CORES = 0.5
"""The share of the cores on which ZenFlow's processes update the weights (1 - pt_reserved_cores_perc, zenflow/zenflow_config.py)."""
COLLECTIVE_SECONDS = 40e-6
"""The fixed cost of a collective: 32 KiB in 48 us on 8 x B200 (stas00/ml-engineering, network/)."""


class Work(NamedTuple):
    """One micro-batch: seconds of compute on a GPU, its tokens, and seconds of copying activations to RAM and back."""

    compute: float
    tokens: int
    copies: float = 0.0


class Traffic(NamedTuple):
    """Seconds of one rank."""

    micro: float
    """Collectives of each micro-batch."""
    boundary: float
    """Collectives once per step."""
    copies: float
    """Copies between GPU and RAM or disk, per micro-batch."""
    optimizer: float
    """The optimizer's step in seconds, including its copies."""
    beside: float
    """The part of `optimizer` that runs during the compute of a step (ZenFlow, SuperOffload)."""
    hides: float
    """The share of the compute that can hide `beside`."""
    host: float
    """The time of Python, per micro-batch."""
    stall: float
    """The time that no kernel hides: stage 3 waits for its hooks between the layers."""
    overlap: float
    """The share of the smaller of compute and collectives that is hidden."""
    adding: float
    """Adding a micro-batch's gradients to those of the ones before."""
    bound: tuple[str, str, str]
    """The possible bottlenecks: which collectives, which copies, which optimizer."""


class Speed(NamedTuple):
    """The seconds of a step, the tokens per second of all ranks, and the bottleneck."""

    step: float
    tokens: float
    bound_by: str
    range: tuple[float, float] = (0.0, 0.0)
    """The tokens per second in a bad and in a good case."""


def work(setup: Setup, shape: TensorShape, n: Counts, idle: int, rates: Rates) -> Work:
    """Return the compute of a micro-batch: linear layers, attention, and memory-bound kernels.

    Frozen weights have no gradient of their own. Recomputation runs the layers' forward pass twice, the head's once.
    """
    tokens, again = setup.tokens, setup.checkpointing and setup.training
    narrow = setup.precision in ("bf16", "fp16", "autocast")
    head = shape.vocabulary * shape.hidden
    active = max(n.params - idle - n.head, 0)
    passes = 4 + 2 * n.trained / max(n.params, 1) if setup.training else 2
    aligned = UNALIGNED if narrow and shape.vocabulary % 8 else 1.0
    share = AGAIN[setup.recompute] * again
    peak = rates.flops if narrow or not rates.slow_flops else rates.slow_flops
    reached = peak * rates.sustained * tokens / (tokens + STARTS * peak / rates.memory)
    seconds, of_head = (passes + 2 * share) * active * tokens / reached, passes * head * tokens * aligned / reached
    square = setup.sequence * tokens * shape.heads * shape.head_dim * shape.layers
    products = ATTENTION_FORWARD * (1 + again * (setup.recompute != "selective")) + ATTENTION_BACKWARD * setup.training
    bytes_moved = rates.memory * MEMORY_SHARE
    if setup.attention == "eager":
        seconds += _eager_attention(setup, shape, again, peak * rates.sustained, bytes_moved)
    else:
        fused = (rates.attention or rates.flops * FUSED_ATTENTION) / (ALIBI if shape.family == "bloom" else 1)
        seconds += products * square / (fused if narrow else min(fused, peak))
    if setup.training:
        moved = moved_in_layers(setup, shape, again and setup.recompute != "attention") + _adapters_moved(setup, n, again)
        seconds += (moved * tokens + _unpacked(n, again)) / bytes_moved
        of_head += 2 * loss_moves(setup, shape) * tokens / bytes_moved
    split = setup.tensor_parallel
    seconds = seconds / split + _exchanged(setup, shape, tokens, again, rates)
    bubble = 1 + (setup.pipeline - 1) / setup.accumulation  # the first and the last micro-batches pass a pipeline alone
    seconds = (seconds_of(setup, shape, seconds, of_head / split) + _passed_on(setup, shape, rates)) * bubble
    waiting = setup.activation_offload and again and setup.recompute == "full"
    copies = 2 * 2 * shape.hidden * shape.layers * tokens / rates.host_link if waiting else 0.0
    return Work(seconds, tokens, copies)


def _eager_attention(setup: Setup, shape: TensorShape, again: bool, flops: float, memory: float) -> float:
    """Return the seconds of the matrix products of attention without a fused kernel: each reads or writes the whole matrix once.

    With heads of 64 elements that takes longer than computing it.
    """
    products = EAGER_FORWARD * (1 + again * (setup.recompute != "selective")) + EAGER_BACKWARD * setup.training
    elements = setup.tokens * setup.sequence * shape.heads * shape.layers * products
    return elements * max(2 * shape.head_dim / flops, (4 if setup.precision == "fp32" else 2) / memory)


def _adapters_moved(setup: Setup, n: Counts, again: bool) -> float:
    """Return the bytes per token that LoRA's kernels move.

    Forward: the input is read once more; the adapter's output is written, scaled (read, written) and added (two read, one written).
    Backward: the gradient of the output is scaled and read for both matrices; the input is read, its gradient written and added.
    """
    read, written = n.adapted
    forward, backward = read + 6 * written, 5 * read + 4 * written
    return (forward * (1 + again) + backward) * (4 if setup.precision in ("fp32", "autocast") else 2) / setup.tensor_parallel


def _unpacked(n: Counts, again: bool) -> float:
    """Return the bytes that are moved to unpack quantized weights."""
    forward, backward = n.unpacked
    return n.frozen * (forward * (1 + again) + backward)


def _exchanged(setup: Setup, shape: TensorShape, tokens: int, again: bool, rates: Rates) -> float:
    """Return the seconds of collectives within the layers, which nothing hides: those of AutoTP, Ulysses and experts."""
    hidden, forward = 2.0 * shape.hidden * tokens, 1 + again
    passes = forward + setup.training
    within = max(setup.tensor_parallel, setup.sequence_parallel, setup.expert_parallel) <= setup.ranks // setup.nodes
    link = rates.inside if within else min(rates.inside, rates.between)
    moved = 0.0
    if setup.tensor_parallel > 1:
        moved += 2 * 2 * (setup.tensor_parallel - 1) / setup.tensor_parallel * hidden * passes
    if setup.sequence_parallel > 1:
        heads = 2 * shape.heads + 2 * shape.kv_heads
        moved += heads * shape.head_dim / shape.hidden * hidden * passes * (setup.sequence_parallel - 1) / setup.sequence_parallel
    if setup.expert_parallel > 1 and shape.experts:
        moved += 2 * shape.experts * hidden * passes * (setup.expert_parallel - 1) / setup.expert_parallel
    waits = (SPLIT_NORMS_SECONDS if setup.norms_split else EXCHANGE_SECONDS) * 2 * passes * (setup.tensor_parallel > 1)
    return shape.layers * (moved / link + waits)


def _passed_on(setup: Setup, shape: TensorShape, rates: Rates) -> float:
    """Return the seconds in which a stage passes a micro-batch on, and its gradient back; the ranks that split tensors pass a part each."""
    if setup.pipeline == 1:
        return 0.0
    each = max(setup.ranks // setup.nodes, 1)
    alone = setup.split <= each  # a pipeline within a node
    sending = 1.0 if alone else max(each / setup.tensor_parallel, 1)
    return 2 * 2 * shape.hidden * setup.tokens * sending / (rates.inside if alone else min(rates.inside, rates.between))


def traffic(setup: Setup, shape: TensorShape, n: Counts, rates: Rates) -> Traffic:
    """Return what ZeRO transfers by stage: the volumes of the collectives on one rank."""
    shards, nodes, lp = setup.shards, setup.nodes, setup.weight_bytes
    share = (shards - 1) / shards
    groups = min(setup.tensor_parallel, max(setup.ranks // nodes, 1))  # that share a node's network, each for its part of the tensors
    across = min(rates.inside, rates.between / groups) if nodes > 1 else rates.inside
    weights = _stored(setup, n) / setup.split * share
    grads = lp * n.trained / setup.split * share
    gather = _gather_seconds(setup, weights, across, rates) if setup.stage == 3 else 0.0
    reduce = grads * (0.25 if setup.quantized_gradients and nodes > 1 else 1) / across
    micro = {0: 0.0, 1: 0.0, 2: reduce, 3: gather + reduce}[setup.stage]
    boundary = {0: 2 * grads / across, 1: 2 * grads / across, 2: grads / across, 3: 0.0}[setup.stage]
    calls = 3 * shape.layers if setup.stage == 3 else max(grads / max(setup.reduce_bucket * lp, 1), 1)
    waits = calls * HOP_SECONDS * max(shards - setup.ranks // setup.nodes, 0) * (setup.stage > 1)
    if shards > 1:
        micro += calls * COLLECTIVE_SECONDS * (setup.stage > 1)
    copies, optimizer, names = _offload(setup, n, rates)
    drained, once = _drained(setup, n, rates)
    copies, boundary = copies + drained, boundary + once
    optimizer, beside, hides = hidden(setup, n, optimizer, rates)
    host = host_seconds(setup, shape, n)
    if setup.stage == 3 and shards > 1 and setup.split_experts and shape.experts:
        waits += EXPERT_SECONDS * _expert_layers(shape, n) * (2 + setup.checkpointing if setup.training else 1)
    if not setup.training:
        micro, boundary, optimizer, beside = gather / 2, 0.0, 0.0, 0.0
    between = "communication between the nodes" if nodes > 1 and rates.between < rates.inside else "communication between the GPUs"
    overlap = HIDDEN if setup.overlap else 0.6 if setup.stage == 3 else 0.0
    stall = STALL_SECONDS * shape.layers * (setup.stage == 3 and shards > 1) + waits
    return Traffic(micro, boundary, copies, optimizer, beside, hides, host, stall, overlap, _adding(setup, n, rates), (between, *names))


def host_seconds(setup: Setup, shape: TensorShape, n: Counts) -> float:
    """Return the seconds of Python per micro-batch: starting the kernels of each pass, and DeepSpeed's hooks."""
    passes = 1 + (1 + setup.checkpointing) * setup.training
    each = PASS_SECONDS * (ADAPTED_PASS if n.adapters else 1) * (COMPILED_PASS if setup.compiled or setup.megatron else 1)
    return (passes * each + HOOK_SECONDS[setup.stage]) * shape.layers / setup.pipeline


def _adding(setup: Setup, n: Counts, rates: Rates) -> float:
    """Return the seconds to add gradients: both are read, one is written; if in 32 bits, the new ones are emptied (bf16_optimizer.py).

    Below stage 2 every rank adds those of all its weights, from stage 2 on those of its part.
    """
    lp = setup.weight_bytes
    each = 2 * lp + 2 * 4 if setup.wide_gradients and lp == 2 else 3 * lp
    mine = n.trained / setup.split / (setup.shards if setup.stage > 1 else 1)
    return each * mine / (rates.memory * MEMORY_SHARE) * setup.training


def _drained(setup: Setup, n: Counts, rates: Rates) -> tuple[float, float]:
    """Return the seconds of copying gradients to an optimizer in RAM, per micro-batch and once per step.

    From stage 2 on each micro-batch copies its own. Those of several are added on the GPU, so that the sum goes there and back
    (stage_1_and_2.py: async_accumulate_grad_in_cpu_via_gpu); stage 3 always fetches what it has copied, and copies it once more in 32
    bits (stage3.py: partition_grads).
    """
    if setup.optimizer_offload == "none" or not setup.training:
        return 0.0, 0.0
    mine = n.trained / setup.split / setup.shards / rates.host_link
    once = setup.weight_bytes * mine
    if setup.stage < 2:
        return 0.0, once
    return (2 * once, 4 * mine) if setup.stage == 3 else (once * (1 + (setup.accumulation > 1)), 0.0)


def _expert_layers(shape: TensorShape, n: Counts) -> float:
    """Return the number of linear layers of all experts, from their parameters and the width of one."""
    return n.experts * shape.experts / (shape.hidden * max(shape.ffn, 1))


def _stored(setup: Setup, n: Counts) -> float:
    """Return the bytes of all weights as they are stored and transferred: frozen ones may be quantized."""
    return setup.weight_bytes * n.trained + (n.frozen_bytes or (1 if setup.small_frozen else setup.weight_bytes)) * n.frozen


def _gather_seconds(setup: Setup, weights: float, across: float, rates: Rates) -> float:
    """Return the time to gather weights for the forward and the backward pass. With a secondary copy, the latter stays within a node."""
    first = weights * (0.5 if setup.quantized_weights else 1) / across
    again = weights / rates.inside if setup.secondary > 1 else first
    return first + again


def hidden(setup: Setup, n: Counts, optimizer: float, rates: Rates) -> tuple[float, float, float]:
    """Return the exposed part of the optimizer's step, the part beside the compute, and the share of compute that can hide it."""
    if setup.zenflow:
        selected = 32 * setup.zenflow * n.trained / setup.shards / (rates.memory * 0.7)
        return selected, optimizer / setup.update_interval / ZENFLOW_CORES, 1.0
    if setup.super_offload:
        return 0.1 * optimizer, 0.9 * optimizer, 2 / 3
    return optimizer, 0.0, 0.0


def _offload(setup: Setup, n: Counts, rates: Rates) -> tuple[float, float, tuple[str, str]]:
    """Return the seconds of copies per micro-batch and of the optimizer, and their names."""
    copies, name = 0.0, "copies over PCIe"
    if setup.param_offload != "none":
        mine = n.trained / setup.split / (setup.shards if setup.stage else 1)
        in_ram = setup.param_offload == "cpu" or (not n.frozen and mine <= setup.host_params)  # max_in_cpu holds all of them
        link = rates.host_link if in_ram else min(rates.host_link, rates.nvme_read / max(setup.ranks // setup.nodes, 1))
        copies = 2 * _stored(setup, n) / setup.split / setup.shards / link
        name = name if in_ram else "reading from NVMe"
    return copies, optimizer_seconds(setup, n, rates), (name, STEPPERS[setup.optimizer_offload])


STEPPERS = {"none": "the optimizer on the GPU", "cpu": "the optimizer on the CPUs", "nvme": "NVMe"}
"""The bottleneck of the optimizer's step by its place."""


def optimizer_seconds(setup: Setup, n: Counts, rates: Rates, slower: float = 1.0) -> float:
    """Return the seconds of the optimizer's step. `slower`: the factor by which CPUs are slower than the rates."""
    mine = n.trained / setup.split / (setup.shards if setup.stage else 1)
    if setup.optimizer_offload == "none":
        return (16 + 2 * optimizer_bytes(setup)) * mine / (rates.memory * 0.7)
    per_node = max(setup.ranks // setup.nodes, 1)
    adam = rates.cpu_adam * (BOUND if setup.cores_bound else 1) / slower
    on_cpu = mine * per_node / adam + setup.weight_bytes * mine / rates.host_link
    if setup.optimizer_offload == "cpu":
        return on_cpu
    disk = per_node * mine * (4 + optimizer_bytes(setup) + 4) * (1 / rates.nvme_read + 1 / rates.nvme_write)
    return max(on_cpu, disk)


def step_seconds(accumulation: int, w: Work, t: Traffic) -> float:
    """Return the seconds of a step of `accumulation` micro-batches."""
    late = max(t.beside - t.hides * accumulation * w.compute, 0.0)
    return accumulation * (max(running_seconds(w, t), t.host) + t.stall) + (accumulation - 1) * t.adding + t.boundary + t.optimizer + late


def running_seconds(w: Work, t: Traffic) -> float:
    """Return the time of a micro-batch: its compute, and what is moved, with the smaller partly hidden.

    Copies to and from RAM wait for the collectives of the same tensors, on the same stream (stage3.py: partition_grads).
    """
    moved = t.micro + t.copies + w.copies
    return max(w.compute, moved) + (1 - t.overlap) * min(w.compute, moved)


def speed(different: int, accumulation: int, w: Work, t: Traffic) -> Speed:
    """Return the speed of a step and its bottleneck; `different`: the ranks that process different tokens."""
    step = step_seconds(accumulation, w, t)
    running = running_seconds(w, t)
    sizes = {
        "compute": accumulation * (w.compute + t.adding),
        t.bound[0]: accumulation * t.micro + t.boundary,
        t.bound[1]: accumulation * (t.copies + w.copies),
        t.bound[2]: t.optimizer + max(t.beside - t.hides * accumulation * w.compute, 0.0),
        "Python between the kernels": accumulation * (t.host if t.host >= running else t.stall),
    }
    return Speed(step, accumulation * w.tokens * different / step if step else 0.0, max(sizes, key=lambda name: sizes[name]))
