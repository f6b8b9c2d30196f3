"""Memory of training that does not depend on the batch: weights, gradients, optimizer states and DeepSpeed's buffers, per rank.

Read from DeepSpeed 0.19.8 and measured on CPU ranks (tests/forecast/test_states.py). Paths are below deepspeed/runtime/. The choice of the
optimizer's wrapper: engine.py:2294; stages 1 and 2: zero/stage_1_and_2.py; stage 3: zero/stage3.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.forecast.model import Counts
from dstui.forecast.setup import Setup

Parts = dict[str, float]

OPTIMIZER_BYTES: Mapping[str, float] = {
    "adam": 8, "adamw": 8, "torch_adamw": 8, "torch_fused_adamw": 8, "fusedadam": 8, "lamb": 8,
    "onebitadam": 12, "zerooneadam": 12, "onebitlamb": 12,
    "sgd": 0, "sgd_momentum": 4, "adagrad": 4, "rmsprop": 4, "rmsprop_momentum": 8, "adafactor": 4, "lion": 4, "muon": 4,
    "adam8bit": 2.1, "adamw8bit": 2.1,
}  # fmt: skip
"""Bytes of 32-bit states per trained parameter. Others count like Adam's 8."""
STEP_BYTES: Mapping[str, float] = {"torch_adamw": 4, "adafactor": 12, "rmsprop": 4, "rmsprop_momentum": 4, "adagrad": 8}
"""Bytes per 32-bit parameter that a step of torch's own optimizers needs in addition to the states: on a GPU for all parameters at once
(foreach; Adagrad makes two tensors, the others one: tests/forecast/test_states.py measures it), on a CPU for one tensor after the other.
Fused ones need none."""
FUSED = frozenset({"adam", "adamw", "fusedadam"})
"""DeepSpeed's own kernels, for which stage 0 uses FP16_Optimizer; others use FP16_UnfusedOptimizer."""
ALL_REDUCE = 500_000_000
"""Elements that stage 0 reduces at once from a flat copy (engine.py:151)."""
SUPER_OFFLOAD = 3.1
"""Additional bytes per parameter of a rank that its GPU holds under SuperOffload: 30.5 against 24.2 GB for 8B on 4 GPUs
(rahulsteiger.github.io, lsaie-project)."""
NORM_CHUNK = 250_000_000
"""Elements of one parameter for which stage 3 with offload computes the norm at once, in 64 bits (zero/stage3.py:1960)."""


@dataclass(slots=True)
class States:
    """Bytes on one rank, by part. Those in `gpu` are persistent from `initialize` on; the others are temporary and come on top."""

    gpu: Parts = field(default_factory=dict)
    host: Parts = field(default_factory=dict)
    nvme: Parts = field(default_factory=dict)
    gradients: float = 0
    """Gradients on the GPU at the end of the backward pass, if they are not persistent."""
    late: float = 0
    """Memory needed beside the gradients after the backward pass: the flat copy that stage 0 reduces."""
    backward: Parts = field(default_factory=dict)
    """Buffers of the forward and backward pass."""
    early: float = 0
    """The part of these that exists when the loss is computed."""
    fetch: float = 0
    """Bytes that stage 3's first fetch needs, before activations are kept: weights, and the buffer from which they are copied."""
    step: Parts = field(default_factory=dict)
    """Bytes that the optimizer's step needs in addition, including the gradients."""
    initialize: float = 0
    """The peak on the GPU during initialize."""
    host_initialize: float = 0
    """The peak in this rank's RAM during initialize, including persistent memory."""


def optimizer_bytes(setup: Setup) -> float:
    """Return the bytes of optimizer state per trained parameter."""
    wide = OPTIMIZER_BYTES.get(setup.optimizer, 8)
    if setup.optimizer == "lion" and setup.optimizer_offload != "none":
        wide = 8  # DeepSpeedCPULion allocates a second moment that it never uses (ops/lion/cpu_lion.py:124)
    return wide / 2 if setup.small_states else wide


def states(setup: Setup, n: Counts) -> States:
    """Return the states of a rank."""
    if not setup.training:
        return _inference(setup, n)
    s = (_stage_0, _stages_1_and_2, _stages_1_and_2, _stage_3)[setup.stage](setup, n)
    if setup.placed:  # they are converted one after the other (engine.py:2085)
        s.initialize = max(s.initialize, float(setup.placed * n.params) + setup.weight_bytes * n.largest)
    return s


@dataclass(slots=True)
class _Sizes:
    """Bytes from which the states of every stage are computed, before ZeRO shards them."""

    lp: int
    """Bytes of a weight."""
    weights: float
    trained: float
    """Trained parameters."""
    master: float
    """Bytes of a master weight."""
    gradient: float
    """Bytes of an accumulated gradient."""
    moments: float
    temporary: float


def _sizes(setup: Setup, n: Counts) -> _Sizes:
    lp, split = setup.weight_bytes, setup.split
    frozen = n.frozen * (n.frozen_bytes or (1 if setup.small_frozen else lp))
    elsewhere = lp * n.experts * (1 - 1 / setup.expert_parallel) if setup.stage < 3 else 0.0
    wide = setup.wide_gradients and lp == 2 and not setup.small_master
    return _Sizes(
        lp=lp,
        weights=max(frozen + n.trained * lp - elsewhere, 0.0) / split,
        trained=n.trained / split,
        master=2 if setup.small_master else 4,
        gradient=4 if wide else lp,
        moments=optimizer_bytes(setup),
        temporary=STEP_BYTES.get(setup.optimizer, 0) * (0.5 if setup.small_master else 1),
    )


def _stage_0(setup: Setup, n: Counts) -> States:
    """Return the states at stage 0, all on every rank. In 16 bits FP16_Optimizer keeps master weights (fp16/fused_optimizer.py)."""
    z = _sizes(setup, n)
    master = z.master if z.lp == 2 else 0
    lp_gradients, wide = z.lp * z.trained, 4 * z.trained * bool(master)
    temporary = z.temporary * (n.largest_trained if setup.on_cpu else z.trained)
    if setup.optimizer in FUSED:
        temporary += wide  # the 32-bit gradients exist as a list and flat (fp16/fused_optimizer.py:287)
    resting: Parts = {"weights": z.weights, "master_weights": master * z.trained, "optimizer_states": z.moments * z.trained}
    first = wide if setup.optimizer in FUSED else lp_gradients + wide + temporary  # a step without gradients creates the states
    return States(
        gpu=resting,
        gradients=lp_gradients,
        late=z.lp * min(ALL_REDUCE, z.trained) if setup.shards > 1 else 0.0,
        step={"gradients": lp_gradients, "step_buffers": wide + temporary},
        initialize=sum(resting.values()) + (first if master else 0),
    )


def _stages_1_and_2(setup: Setup, n: Counts) -> States:
    """Return the states with sharded optimizer states, at stage 2 also sharded gradients. Every rank has all weights."""
    z, shards = _sizes(setup, n), setup.shards
    s = States(gpu={"weights": z.weights})
    mine = z.trained / shards
    buckets = (2 if setup.overlap else 1) * _bucket(setup, z) * _bucket_bytes(setup, z) if setup.contiguous and z.trained else 0
    s.backward = {"reduce_buckets": buckets + (min(setup.reduce_bucket, z.trained) * z.lp if shards > 1 else 0)}
    s.early = buckets
    held = z.gradient * mine if setup.stage == 2 else z.lp * z.trained
    if setup.optimizer_offload != "none":
        return _offloaded_1_and_2(setup, n, z, s, mine)
    s.gpu |= {"master_weights": z.master * mine, "optimizer_states": z.moments * mine}
    if setup.stage == 1 and z.gradient == 4 and z.lp == 2:  # BF16_Optimizer: unpartitioned, in 32 bits (bf16_optimizer.py:191)
        s.gpu["gradients"] = 4 * z.trained
        s.gradients = z.lp * z.trained
        s.step = {"gradients": s.gradients, "step_buffers": z.temporary * mine}
        s.initialize = z.weights + z.master * mine + 4 * z.trained
        return s
    s.gradients = held
    wide = z.gradient if z.lp == 2 and (z.gradient == 4 or setup.small_master) else 4 + z.lp if z.lp == 2 else 8
    copies = 0 if wide == 4 and z.gradient == 4 else z.lp if setup.small_master else wide
    inner = (z.gradient if copies == 0 else 2 if setup.small_master else 4) + z.temporary
    s.step = {"gradients": z.gradient * mine, "step_buffers": max(copies * mine, (inner - z.gradient) * mine, _norm(n))}
    s.initialize = z.weights + max(_flat(setup, z), 2 * z.master * mine)  # zeros replace the first gradients
    return s


def _bucket(setup: Setup, z: _Sizes) -> float:
    """Return the elements of a bucket that take memory: on CPUs only those that are ever written, since it is allocated empty."""
    return min(setup.reduce_bucket, z.trained) if setup.on_cpu else setup.reduce_bucket


def _bucket_bytes(setup: Setup, z: _Sizes) -> float:
    """Return bytes per element of a bucket. Under autocast there is a bucket for each type."""
    return 6 if setup.precision == "autocast" else z.lp


def _flat(setup: Setup, z: _Sizes) -> float:
    """Return the flat copy of the weights in initialize. If the GPU has no room for it, it is in RAM (zero/stage_1_and_2.py:450)."""
    return z.lp * z.trained if setup.on_cpu else 0.0


def _norm(n: Counts) -> float:
    """Return the memory for the norm of gradients, computed in 64 bits, one parameter at a time (zero/stage_1_and_2.py:2684)."""
    return 8.0 * n.largest_trained


def _offloaded_1_and_2(setup: Setup, n: Counts, z: _Sizes, s: States, mine: float) -> States:
    """Return the states with the optimizer in RAM: master weights, states, 32-bit gradients and a copy of the weights for the GPU."""
    s.gpu["offload_buffers"] = z.lp * n.largest_trained  # temp_grad_buffer_for_gpu_offload (:659)
    s.gradients = z.lp * z.trained if setup.stage == 1 else 4 * mine if z.gradient == 4 and z.lp == 2 else 0
    s.step = {"gradients": s.gradients}
    s.host = {
        "master_weights": z.master * mine,
        "optimizer_states": z.moments * mine,
        "gradients": (2 if setup.small_master else 4) * mine + (z.lp * mine if setup.accumulation > 1 else 0),
        "weights_to_copy": z.lp * mine,
        "offload_buffers": z.lp * n.largest_trained,
    }
    _zenflow(setup, s, mine)
    s.initialize = z.weights + _flat(setup, z)
    s.host_initialize = sum(s.host.values()) - s.host["optimizer_states"]  # which the first step creates
    return s


def _zenflow(setup: Setup, s: States, mine: float) -> None:
    """Add ZenFlow's selected columns on the GPU (master, states, gradient) and the second copy of accumulated gradients in RAM."""
    if setup.zenflow:
        s.gpu["selected_columns"] = 16 * setup.zenflow * mine
        s.host["accumulated_gradients"] = 8.0 * mine


def _stage_3(setup: Setup, n: Counts) -> States:
    """Return the states with everything sharded. Weights are gathered around the layer that is computed."""
    z, shards = _sizes(setup, n), setup.shards
    mine, whole = z.trained / shards, z.weights
    s = States()
    weights: Parts = {"weights": whole / shards}
    small = min(n.small, n.params) * z.lp * (shards > 1)
    if setup.param_offload == "none":
        s.gpu = weights
    elif setup.param_offload == "cpu":
        s.host = weights
    else:
        s.nvme = dict(weights)
        in_ram = z.lp * min(setup.host_params, mine)  # a flat buffer, whether or not a sub-group fits (zero/stage3.py:890)
        s.host = {"swap_buffers": float(setup.param_buffers * setup.param_buffer * z.lp), "weights": in_ram}
    s.gpu["persistent_weights"] = small
    if setup.secondary > 1:
        s.gpu["secondary_weights"] = whole / setup.secondary * (0.5 if setup.quantized_weights else 1)
    s.gpu["reduce_buckets"] = _bucket(setup, z) * _bucket_bytes(setup, z) if z.trained and setup.contiguous else 0
    s.backward = _gathered(setup, n, z)
    s.early = s.backward["live_weights"]
    s.fetch = 2 * _fetched(setup, n, z)
    group = min(setup.sub_group + n.largest_trained / shards, mine) if mine > setup.sub_group else mine
    if setup.optimizer_offload == "none":
        _stage_3_on_gpu(setup, z, s, mine, group)
    else:
        _stage_3_offloaded(setup, z, s, mine, group)
        s.step = {"step_buffers": 8.0 * min(NORM_CHUNK, n.largest_trained / shards)}
    _initialized(setup, n, z, s)
    return s


def _initialized(setup: Setup, n: Counts, z: _Sizes, s: States) -> None:
    """Add what stage 3 needs during initialize. The first step creates the optimizer states."""
    s.initialize = sum(s.gpu.values()) - s.gpu.get("optimizer_states", 0) + 2 * z.lp * n.largest
    if not setup.built_partitioned:
        s.initialize = max(s.initialize, z.weights + z.lp * n.largest)  # module.to(device) before it is partitioned (engine.py:2094)
    s.host_initialize = sum(s.host.values()) - s.host.get("optimizer_states", 0)


def _stage_3_on_gpu(setup: Setup, z: _Sizes, s: States, mine: float, group: float) -> None:
    s.gpu |= {
        "master_weights": z.master * mine,
        "optimizer_states": z.moments * mine,
        "gradients": z.gradient * mine,
    }
    flat = z.gradient + 4 if z.lp == 2 and not setup.small_master else 2 if setup.small_master else 8  # flatten, then to 32 bits (:2686)
    s.step = {"step_buffers": (flat + z.temporary) * group}


def _stage_3_offloaded(setup: Setup, z: _Sizes, s: States, mine: float, group: float) -> None:
    wide = 2 if setup.small_master else 4
    away = mine * setup.offload_share
    here = mine - away
    s.host["gradients"] = z.gradient * mine
    if here:
        s.gpu |= {"master_weights": z.master * here, "optimizer_states": z.moments * here}
    if setup.super_offload:
        s.gpu["offload_buffers"] = SUPER_OFFLOAD * mine
    if setup.optimizer_offload == "cpu":
        _zenflow(setup, s, mine)
        s.host["gradients"] += wide * away
        s.host |= {"master_weights": z.master * away, "optimizer_states": z.moments * away}
    else:
        s.nvme |= {"master_weights": z.master * away, "optimizer_states": z.moments * away, "gradients": 4 * away}
        s.host["swap_buffers"] = s.host.get("swap_buffers", 0) + setup.optimizer_buffers * group * 4


def _gathered(setup: Setup, n: Counts, z: _Sizes) -> Parts:
    """Return stage 3's full weights: those kept for their next use, and the buffers they are gathered in.

    A weight stays after the forward pass if its next use is within stage3_max_reuse_distance (zero/partitioned_param_coordinator.py:658):
    at the turn from forward to backward, half of the distance. stage3_max_live_parameters limits only the prefetch (:453). If all weights
    stay, the backward pass gathers nothing.
    """
    alone = setup.shards == 1
    if alone and setup.param_offload == "none":
        return {"live_weights": 0.0, "gather_buffers": 0.0}
    params, of_weight = _large(setup, n), _bytes_per_weight(setup, n, z)
    unit = max(n.layer, n.head) / setup.tensor_parallel
    live = max(min(params, setup.reuse_distance / 2), min(params, unit + setup.prefetch_bucket))
    if alone:  # nothing to gather, but weights in RAM are copied (zero/partition_parameters.py, NoGatherHandle)
        return {"live_weights": of_weight * live, "gather_buffers": 0.0}
    gather = _fetched(setup, n, z) if live < params else 0.0
    bucket = min(setup.reduce_bucket, z.trained, max(n.layer, n.head)) * z.gradient
    reduced = 2 * bucket  # its gradients, and the flat copy of them that is reduced (comm/coalesced_collectives.py:122)
    grads = z.lp * min(z.trained, n.largest_trained)
    return {"live_weights": of_weight * live, "gather_buffers": gather + reduced + grads}


def _fetched(setup: Setup, n: Counts, z: _Sizes) -> float:
    """Return the bytes of weights that stage 3 gathers at once: the prefetched ones, and at least the largest one."""
    if setup.shards == 1:
        return 0.0
    return _bytes_per_weight(setup, n, z) * min(_large(setup, n), max(setup.prefetch_bucket, n.largest / setup.tensor_parallel))


def _large(setup: Setup, n: Counts) -> float:
    """Return the number of parameters that are gathered; small ones stay."""
    return (n.params - min(n.small, n.params)) / setup.tensor_parallel


def _bytes_per_weight(setup: Setup, n: Counts, z: _Sizes) -> float:
    """Return the bytes of a weight, including frozen ones."""
    return z.weights / max(n.params / setup.tensor_parallel, 1)


def _inference(setup: Setup, n: Counts) -> States:
    """Return the states of ZeRO inference, or of a model that is not trained: weights and the buffers they are gathered in."""
    z = _sizes(setup, n)
    if setup.stage != 3:
        return States(gpu={"weights": z.weights}, initialize=z.weights)
    s = _stage_3(setup, n)
    for place in (s.gpu, s.host, s.nvme):
        for part in ("master_weights", "optimizer_states", "gradients", "reduce_buckets"):
            place.pop(part, None)
    s.step, s.gradients = {}, 0
    _initialized(setup, n, z, s)
    return s
