"""The tensors of a model: a list from which its parameters, LoRA matrices, largest tensor and quantized bytes are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import Literal

from dstui.base.dataclass import dataclass

Kind = Literal["linear", "experts", "embedding", "head", "norm", "other"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """The parameters of one module. A linear layer's shape is (out, in)."""

    module: str
    """The last part of the module's name, as in LoRA's target_modules: q_proj."""
    kind: Kind
    shape: tuple[int, ...]
    times: int = 1
    """The number of layers that have it."""
    bias: bool = False
    """True if it is the bias of the module."""

    @property
    def size(self) -> int:
        """The parameters of one of them."""
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """The sizes that determine activations, FLOPs and communication."""

    family: str
    """The family whose measured activations apply."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """The inner width of the MLP, summed over all experts of a token."""
    vocabulary: int
    """Rows of the logits; 0 if the model does not end in a vocabulary."""
    positions: int
    """The longest sequence that the model was made for; 0 for no limit."""
    experts: int = 0
    """The number of experts per token; 0 without experts."""
    streams: int = 1
    """Residual streams between the layers (hyper-connections)."""


class Census:
    """Collects the tensors of an architecture. `times` multiplies tensors that are added within a layer."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def linear(self, module: str, into: int, out: int, bias: bool = False, times: int = 1) -> None:
        """Add a linear layer."""
        self.tensors.append(Tensor(module, "linear", (out, into), times))
        if bias:
            self.tensors.append(Tensor(module, "linear", (out,), times, bias=True))

    def norm(self, module: str, size: int, bias: bool = False, times: int = 1) -> None:
        """Add a normalisation: a scale, and possibly a bias."""
        self.tensors.append(Tensor(module, "norm", (size,), times))
        if bias:
            self.tensors.append(Tensor(module, "norm", (size,), times, bias=True))

    def add(self, module: str, kind: Kind, *shape: int, times: int = 1) -> None:
        """Add any other tensor."""
        self.tensors.append(Tensor(module, kind, shape, times))


@dataclass(frozen=True)
class Architecture:
    """A model as its tensors. A tensor that is tied to another is listed once."""

    kind: str
    """Its `model_type`."""
    tensors: tuple[Tensor, ...]
    shape: TensorShape
    idle: int = 0
    """Parameters of experts that a token does not use."""
    groups: tuple[tuple[str, ...], ...] = field(default=())
    """Linear layers that read the same tensor, so that LoRA stores it once."""

    @cached_property
    def params(self) -> int:
        """The number of parameters, each counted once."""
        return sum(t.size * t.times for t in self.tensors)

    @cached_property
    def largest(self) -> int:
        """Parameters of the largest tensor."""
        return max(t.size for t in self.tensors)

    @cached_property
    def linears(self) -> tuple[Tensor, ...]:
        """The weights of linear layers without the head: those that LoRA adapts and quantization compresses."""
        return tuple(t for t in self.tensors if t.kind == "linear" and not t.bias)

    @cached_property
    def layer(self) -> int:
        """The mean number of parameters per layer."""
        return sum(t.size * t.times for t in self.tensors if t.times > 1) // max(self.shape.layers, 1)

    @cached_property
    def head(self) -> int:
        """The parameters of the tensor that computes the logits: the head, or the embedding tied to it."""
        return max((t.size for t in self.tensors if t.kind in ("head", "embedding")), default=0)

    def targets(self, modules: tuple[str, ...] | str) -> Iterator[Tensor]:
        """Yield the linear layers that LoRA adapts: by the last part of their names, or all-linear."""
        wanted = (modules,) if isinstance(modules, str) else modules
        return (t for t in self.linears if "all-linear" in wanted or any(_ends_with(name, t.module) for name in wanted))


def _ends_with(target: str, module: str) -> bool:
    """Return whether a target names this module: in full, or by the end of its path (self_attn.q_proj)."""
    return target == module or target.endswith(f".{module}")
