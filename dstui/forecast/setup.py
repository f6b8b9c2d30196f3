"""The setup: settings that determine bytes and seconds."""

from __future__ import annotations

from typing import Literal, NamedTuple

Precision = Literal["fp32", "fp16", "bf16", "autocast"]
Place = Literal["none", "cpu", "nvme"]
Attention = Literal["eager", "sdpa", "flash", "flash3"]
LOSS_BYTES = 12.0
"""Bytes per token and row of the vocabulary during the cross entropy: logits in 32 bits, their softmax, its gradient. Measured with
transformers' loss in 16 bits: 12.3 in the Trainer."""


class Setup(NamedTuple):
    """One way of training a model on some ranks. Bucket sizes are in elements, as DeepSpeed counts them.

    It is a named tuple because a search derives hundreds of them from one, which takes twenty times as long with a dataclass.
    """

    ranks: int = 1
    """The total number of ranks."""
    nodes: int = 1
    stage: int = 0
    precision: Precision = "bf16"
    small_master: bool = False
    """Master weights and gradients in 16 bits (bf16_master_weights_and_grads and the fp16 equivalent)."""
    small_states: bool = False
    """Optimizer states in 16 bits (bf16_optimizer_states)."""
    wide_gradients: bool = False
    """Gradients accumulated in 32 bits (data_types.grad_accum_dtype)."""
    optimizer: str = "adamw"
    optimizer_offload: Place = "none"
    param_offload: Place = "none"
    offload_share: float = 1.0
    """Share of the optimizer that is offloaded (ratio)."""
    micro_batch: int = 1
    accumulation: int = 1
    sequence: int = 2048
    checkpointing: bool = False
    attention: Attention = "sdpa"
    fused_loss: bool = False
    liger: bool = False
    """The fused loss is Liger's, whose kernels also replace norms, rotation and MLP."""
    loss_bytes: float = LOSS_BYTES
    reduce_bucket: int = 500_000_000
    prefetch_bucket: int = 50_000_000
    persistence: int = 100_000
    """Stage 3: a parameter below this size stays complete on every rank."""
    sub_group: int = 1_000_000_000
    reuse_distance: int = 1_000_000_000
    overlap: bool = False
    contiguous: bool = True
    secondary: int = 1
    """Ranks over which the second copy of the weights is sharded (zero_hpz_partition_size); 1 = none."""
    quantized_weights: bool = False
    quantized_gradients: bool = False
    pinned: bool = True
    optimizer_buffers: int = 4
    param_buffers: int = 5
    param_buffer: int = 100_000_000
    host_params: int = 1_000_000_000
    """Parameters that offload_param to NVMe keeps in RAM (max_in_cpu)."""
    tensor_parallel: int = 1
    split_logits: bool = False
    """True if each rank of tensor parallelism computes its own rows of the vocabulary, as Megatron does (AutoTP gathers the logits)."""
    megatron: bool = False
    """True if Megatron's layers run: fused kernels, dropout, and norms that every rank of tensor parallelism computes in full."""
    norms_split: bool = False
    """True if those ranks also split the norms and dropouts, by tokens (--sequence-parallel)."""
    pipeline: int = 1
    """Ranks over which Megatron splits the layers: each holds some, and works on as many micro-batches at once."""
    sequence_parallel: int = 1
    built_partitioned: bool = False
    """Stage 3: whether the model is built under zero.Init, so that no rank ever holds all of it."""
    placed: int = 0
    """Bytes of each weight that the script has put on the GPU before DeepSpeed converts and shards them; 0 = none."""
    gathered_on_save: bool = False
    """Stage 3: whether saving gathers the 16-bit weights in the RAM of rank 0."""
    expert_parallel: int = 1
    """Ranks over which experts are split (AutoEP)."""
    recompute: str = "full"
    """With checkpointing, what runs again: whole layers (full), what is cheap (selective), the matrix of the attention (attention)."""
    activation_offload: bool = False
    """With checkpointing: the inputs of the layers are stored in RAM."""
    tiled_mlp: bool = False
    compiled: bool = False
    """True if torch.compile fuses the layers' small kernels."""
    split_experts: bool = False
    """True if each expert has linear layers of its own, as before transformers 5, so that bitsandbytes quantizes them."""
    small_frozen: bool = False
    """Frozen weights in 8 bits (zero_quantized_nontrainable_weights)."""
    zenflow: float = 0.0
    """Share of the gradients that ZenFlow applies on the GPU at each step; 0 = off."""
    update_interval: int = 4
    """Steps between ZenFlow's updates of the rest."""
    super_offload: bool = False
    cores_bound: bool = False
    """True if each rank is bound to CPU cores of its own (--bind_cores_to_rank)."""
    training: bool = True
    on_cpu: bool = False
    """True if the ranks run on CPUs."""
    libraries: frozenset[str] | None = None
    """The packages that the script imports, and "Trainer"; None if they are not known."""

    @property
    def shards(self) -> int:
        """The number of ranks over which ZeRO shards."""
        return max(self.ranks // self.split, 1)

    @property
    def split(self) -> int:
        """The number of ranks that hold one copy of the model, by tensors and by layers."""
        return self.tensor_parallel * self.pipeline

    @property
    def different(self) -> int:
        """The number of ranks that process different tokens."""
        return max(self.ranks // (self.split * self.sequence_parallel), 1) * self.sequence_parallel

    @property
    def weight_bytes(self) -> int:
        """The bytes of one trained weight in the type in which the model computes."""
        return 4 if self.precision in ("fp32", "autocast") else 2

    @property
    def tokens(self) -> int:
        """The tokens of one micro-batch on one rank."""
        return self.micro_batch * max(self.sequence // self.sequence_parallel, 1)

    @property
    def settings(self) -> str:
        """A short text that distinguishes runs of one model: ZeRO, the batch and recomputation."""
        zero = f"{self.stage} {self.optimizer_offload} {self.param_offload} {self.precision}"
        again = "again" if self.checkpointing else "kept"
        return f"{zero} {self.micro_batch}x{self.accumulation} {self.sequence}/{self.sequence_parallel} {again} {self.ranks}/{self.nodes}"

    @property
    def samples(self) -> int:
        """The samples of one optimizer step on all ranks."""
        return self.micro_batch * self.accumulation * max(self.ranks // (self.split * self.sequence_parallel), 1)
