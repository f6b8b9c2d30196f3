"""Combine states and activations: the needs at each moment, on each GPU, in the RAM of each node and on its disks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from dstui.base.dataclass import dataclass
from dstui.forecast.activations import Activations
from dstui.forecast.model import Counts
from dstui.forecast.setup import Setup
from dstui.forecast.states import States

GIB = 1 << 30
CUDA_CONTEXT = 0.45 * GIB
"""A process's CUDA context and the code of its kernels: 0.14 GiB on a T4, about 0.5 on an H100."""
NCCL_BUFFERS = 0.4 * GIB
"""Buffers of NCCL's channels within a node: 0.3 to 1.5 GiB."""
NCCL_BETWEEN_NODES = 0.3 * GIB
NCCL_OF_PEER = 0.8 * GIB
"""The same for each further rank with which another exchanges parts of samples: beside torch's memory and a context, processes of Ulysses
held 1.2 GiB with 2 ranks of a node and 3.7 with 4 (messages of torch in github.com/bigyanghimire/deepspeed-experiments)."""
MIB = 1 << 20
ALONE = 385 * MIB
"""RAM of a rank with torch and DeepSpeed that has trained ten steps of a model of a few kilobytes: the highest resident memory of two ranks
on CPUs (torch 2.13, DeepSpeed 0.19.8, transformers 5.23, accelerate 1.15, trl 1.16). So were the libraries measured."""
LIBRARIES: Mapping[str, float] = {
    "accelerate": 18 * MIB, "transformers": 52 * MIB, "peft": 55 * MIB, "datasets": 98 * MIB, "lightning": 117 * MIB,
    "pytorch_lightning": 117 * MIB, "bitsandbytes": 119 * MIB,
}  # fmt: skip
"""The RAM that each of these libraries adds if a script imports it."""
TRAINER, TRL = 155 * MIB, 175 * MIB
"""The same for transformers' Trainer and for trl, including those that they import."""
CUDA_LIBRARIES, LEAST_CUDA = 3.07 * GIB, 1.2 * GIB
"""The RAM of CUDA's libraries and of the code of kernels. PEFT's scripts, which import all of the above, took 3 to 3.8 GB in total (its
README); the first use of a GPU alone took 1.2 GiB (github.com/pytorch/pytorch/issues/106511) and 1.6 (113326), with kernels loaded as
needed."""
LARGEST_FILE = 50e9
"""Bytes of a checkpoint's largest file: every rank reads it if the model is built partitioned, file by file."""
WASTED = {0: 0.03, 1: 0.03, 2: 0.03, 3: 0.06}
"""By stage, the usual overhead of torch's allocator as a share of its allocations."""
FRAGMENTED = 1.23
"""The possible overhead of torch's allocator as a factor, if layers run again: the peak is usually the step's, whose buffers of gigabytes
fit into no smaller piece that was freed (DeepSpeed #3734; no estimate below 80 % ran out of memory: Fujii et al., arXiv 2411.06465)."""
FRAGMENTED_KEPT = {0: 1.12, 1: 1.12, 2: 1.12, 3: 1.4}
"""The same by stage where activations are kept. At stage 3 buffers of gathered weights come and go between them (12B on 4 x GH200 of 95 GiB
ran out of memory at a peak of 68 GiB: rahulsteiger.github.io, lsaie-project); at stage 2, 8B with 8k tokens took 99 (ml-engineering)."""
AWAY, ULYSSES = 1.4, 1.15
"""The factors by which that is higher with weights in RAM, whose copies on the GPU overlap (4 of 13 published rows took 1.3 to 1.8 times
the estimate), and where ranks split samples (1.06 to 1.24 times in 6 rows of a fork of DeepSpeed)."""
COMPARED = 1.5
"""The same with a reference model: three of five published jobs with DPO ran out of memory on cards of 1.2 to 1.45 times that, for reasons
that they do not say (tests/long/blind_rows_10.csv)."""
ADAPTED = 1.06
"""The factor by which the range of a model with LoRA is wider: so far beyond it are the published rows."""
SPLIT = 1.35
"""The same where ranks split tensors or layers, not all equally, in processes with buffers for each group of them: 17 jobs of about 180B on
384 A100 took 1.05 to 1.18 times the estimate, and 1.3B on V100 up to 1.5 (tests/long/blind_rows_6.csv)."""
RELEASED, RELEASED_VARIED = 5 * GIB, 12 * GIB
"""Stage 3: bytes of gathered weights that are released but not usable yet. DeepSpeed gathers them on a stream of its own and marks each as
used by that of the layers (`record_stream`, zero/partition_parameters.py:327), so torch waits until the GPU has passed them, while the CPU
already gathers the next ones. How far it is ahead depends on the host: fitted to reserved memory on cards with room
(tests/long/blind_rows_*.csv), the second where samples of different lengths leave pieces of different sizes."""
LAST = 0.15
"""The share of the activations that still exists when nearly all gradients do."""
INSIDE, INSIDE_KEPT = 0.95, 0.85
"""The actual peak may be lower by this factor; the second where activations are kept, of which kernels that a Plan cannot name keep less
(xformers' SwiGLU, norms with a residual: 1.1B with them took 0.84 to 0.96 times the estimate, tests/long/blind_rows_10.csv)."""


@dataclass(slots=True)
class Room:
    """Bytes in one place: by part at the moment of the peak, and the peak of each moment."""

    parts: dict[str, float] = field(default_factory=dict)
    moments: dict[str, float] = field(default_factory=dict)
    around: float = 0
    """Bytes besides torch's allocations: contexts, libraries."""

    @property
    def peak(self) -> float:
        """The most that is needed."""
        return max(self.moments.values(), default=0) + self.around

    @property
    def when(self) -> str:
        """The moment of the peak."""
        return max(self.moments, key=lambda moment: self.moments[moment], default="")


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of one model. `gpu` is for one rank without its process; `host` and `nvme` are for one rank too."""

    gpu: Room
    host: Room
    nvme: dict[str, float]
    checkpoint: float
    cached: float = 0.0
    """Bytes that torch takes beyond the GPU's peak if there is room, and gives back if there is not."""


def keeps_activations(setup: Setup) -> bool:
    """Return whether layers keep most of what their backward pass needs."""
    return setup.training and (not setup.checkpointing or setup.recompute == "attention")


def fragmented(setup: Setup) -> float:
    """Return the possible overhead of torch's allocator as a factor."""
    kept = keeps_activations(setup)
    more = (AWAY if setup.param_offload != "none" else 1.0) * (ULYSSES if setup.sequence_parallel > 1 else 1.0)
    return more * (FRAGMENTED_KEPT[setup.stage] if kept else FRAGMENTED)


def process_bytes(setup: Setup, cuda: float = CUDA_LIBRARIES) -> float:
    """Return the RAM of a rank's process before it holds anything, by what the script imports; if that is unknown, all that is likely."""
    named = setup.libraries
    whole = TRL if named is None or "trl" in named else TRAINER if "Trainer" in named else 0
    mine = 0 if named is None else sum(size for name, size in LIBRARIES.items() if name in named)
    return ALONE + max(whole, mine) + cuda * (not setup.on_cpu)


def around(setup: Setup) -> float:
    """Return the bytes of a GPU outside of torch's allocator."""
    return CUDA_CONTEXT + nccl_bytes(setup)


def nccl_bytes(setup: Setup) -> float:
    """Return the bytes of NCCL's buffers: each group of ranks has its own."""
    parts = setup.sequence_parallel
    groups = (setup.shards > 1) + (setup.tensor_parallel > 1) + (setup.pipeline > 1) + 2 * (parts > 1)
    peers = max(min(parts, setup.ranks // setup.nodes) - 2, 0)
    return NCCL_BUFFERS * groups + NCCL_OF_PEER * peers + (NCCL_BETWEEN_NODES if setup.nodes > 1 else 0)


INITIALIZE, TRAIN, STEP = "initialize", "forward and backward", "optimizer step"
BUILD, RUN, SAVE = "load and build", "train", "save as one file"


def needs(setup: Setup, n: Counts, s: States, a: Activations, varied: bool = False) -> Needs:
    """Return the needs of a rank. `varied`: whether samples have different lengths."""
    resting, around_it = sum(s.gpu.values()), beside(setup, n, s)
    backward, buffers = max(around_it.peak(a), s.fetch), sum(s.backward.values())
    gpu = Room({**s.gpu}, {INITIALIZE: s.initialize, TRAIN: resting + backward, STEP: resting + sum(s.step.values())})
    if gpu.when == STEP:
        extra: Mapping[str, float] = s.step
    elif backward == s.fetch:
        extra = {"live_weights": s.fetch / 2, "gather_buffers": s.fetch / 2}
    else:
        at_loss = backward == a.kept + a.loss + around_it.at_loss
        extra = {"activations": a.kept + a.work * (not at_loss), "logits_and_loss": a.loss * at_loss}
        extra |= {part: size * (s.early / buffers if at_loss and buffers else 1) for part, size in s.backward.items()}
        extra["gradients"] = max(backward - sum(extra.values()), 0.0)
    for part, size in extra.items():
        gpu.parts[part] = gpu.parts.get(part, 0) + size
    if gpu.when == INITIALIZE:
        gpu.parts = {**s.gpu, "initialization": max(s.initialize - resting, 0.0)}
    kept = cached_bytes(setup, s, gpu, varied) if setup.training else 0.0
    return Needs(gpu, host_room(setup, n, s, a.host), s.nvme, checkpoint_bytes(setup, n), kept)


def cached_bytes(setup: Setup, s: States, gpu: Room, varied: bool) -> float:
    """Return what torch's allocator takes beyond the peak if there is room.

    Until stage 2 the optimizer's step needs buffers that are larger than any piece that the pass has left, beside which gradients lie.
    """
    passes = gpu.moments[TRAIN]
    if setup.stage < 3:
        return max(passes + gpu.moments[STEP] - sum(s.gpu.values()) - gpu.peak, 0.0)
    return max(passes + released_bytes(setup, s, varied) - gpu.peak, 0.0)


def released_bytes(setup: Setup, s: States, varied: bool) -> float:
    """Return the bytes of gathered weights that are released but not usable yet."""
    if setup.stage < 3 or setup.shards == 1:
        return 0.0
    weights = setup.shards * next((room["weights"] for room in (s.gpu, s.host, s.nvme) if "weights" in room), 0.0)
    return min(weights, RELEASED_VARIED if varied else RELEASED)


class PassMemory(NamedTuple):
    """Memory besides the activations in the forward and backward pass."""

    at_loss: float
    in_layers: float
    at_end: float

    def peak(self, a: Activations) -> float:
        """Return the peak of the passes beyond persistent state: at the loss, in the layers, or with all gradients."""
        kept = a.kept
        return max(kept + a.loss + self.at_loss, kept + a.work + self.in_layers, LAST * kept + self.at_end)


def beside(setup: Setup, n: Counts, s: States) -> PassMemory:
    """Return buffers and gradients at the three possible moments of the peak."""
    held = s.gradients if setup.accumulation > 1 else 0.0  # after the first micro-batch of an accumulation
    of_head = setup.weight_bytes * min(n.head, n.trained) / setup.tensor_parallel if setup.stage < 3 and setup.training else 0.0
    buffers = sum(s.backward.values())
    return PassMemory(s.early + held, buffers + held + of_head, s.gradients + s.late + buffers)


def host_room(setup: Setup, n: Counts, s: States, activations: float = 0.0) -> Room:
    """Return the RAM of a rank. A model that is not built partitioned is first built in full by every rank, in its own type."""
    held, weight = sum(s.host.values()), n.frozen_bytes if n.frozen > n.trained and n.frozen_bytes else setup.weight_bytes
    whole = 0.0 if setup.built_partitioned and setup.stage == 3 else weight * n.params
    placed = s.host.get("weights", 0.0)
    read = min(weight * n.params, LARGEST_FILE) if setup.built_partitioned and placed else 0.0
    moments = {BUILD: whole + read + placed * bool(read), INITIALIZE: max(s.host_initialize, held), RUN: held + activations}
    if setup.gathered_on_save:
        moments[SAVE] = held + setup.weight_bytes * n.params / setup.ranks  # all on rank 0
    return Room({**s.host, **({"activations": activations} if activations else {})}, moments)


def checkpoint_bytes(setup: Setup, n: Counts) -> float:
    """Return the bytes of one checkpoint of all ranks: the weights once, master weights and optimizer states."""
    from dstui.forecast.states import optimizer_bytes

    master = 2 if setup.small_master else 4
    if setup.weight_bytes == 4 and setup.stage in (0, 3):
        master = 0
    return setup.weight_bytes * n.params + (master + optimizer_bytes(setup)) * n.trained * setup.training


def combine_needs(several: Iterable[Needs]) -> Needs:
    """Combine several models of a run: persistent bytes add up, plus the highest temporary peak."""
    rows = list(several)
    if len(rows) == 1:
        return rows[0]
    gpu, host, nvme = Room(), Room(), dict[str, float]()
    for one in rows:
        for room, mine in ((gpu, one.gpu), (host, one.host)):
            _add(room.parts, mine.parts)
            resting = min(mine.moments.values(), default=0.0)
            room.around += resting
            for moment, size in mine.moments.items():
                room.moments[moment] = max(room.moments.get(moment, 0.0), size - resting)
        _add(nvme, one.nvme)
    for room in (gpu, host):
        room.moments = {moment: size + room.around for moment, size in room.moments.items()}
        room.around = 0
    return Needs(gpu, host, nvme, sum(one.checkpoint for one in rows), max(one.cached for one in rows))


def _add(into: dict[str, float], more: Mapping[str, float]) -> None:
    for part, size in more.items():
        into[part] = into.get(part, 0.0) + size
