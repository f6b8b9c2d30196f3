"""The tensors of a model: a list that its parameters, its LoRA matrices, its largest tensor and its quantized bytes are counted from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Kind = Literal["linear", "experts", "embedding", "head", "norm", "other"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Parameters of one module. A linear layer's shape is (out, in)."""

    module: str
    """The last part of the module's name, as LoRA's target_modules has it: q_proj."""
    kind: Kind
    shape: tuple[int, ...]
    times: int = 1
    """In how many layers it is."""
    bias: bool = False
    """Whether it is the bias of the module."""

    @property
    def size(self) -> int:
        """Parameters of one of them."""
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """The sizes that activations, FLOPs and communication follow from."""

    family: str
    """By which family's measured activations it is judged."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """The width between the linear layers of the MLP, of all experts that a token goes through together."""
    vocabulary: int
    """Rows of the logits; 0 where the model does not end in a vocabulary."""
    positions: int
    """The longest sequence that the model was made for; 0 where it has no bound."""
    experts: int = 0
    """How many experts a token goes through; 0 where the MLP is one."""


class Census:
    """Collects the tensors of an architecture. `times` multiplies what is added inside of a layer."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def linear(self, module: str, into: int, out: int, bias: bool = False, times: int = 1) -> None:
        """Add a linear layer."""
        self.tensors.append(Tensor(module, "linear", (out, into), times))
        if bias:
            self.tensors.append(Tensor(module, "linear", (out,), times, bias=True))

    def norm(self, module: str, size: int, bias: bool = False, times: int = 1) -> None:
        """Add a normalisation: a scale, and a bias where it has one."""
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
    """Parameters of experts that a token does not go through."""
    groups: tuple[tuple[str, ...], ...] = field(default=())
    """Linear layers that read the same tensor: what LoRA saves of it is shared."""

    @cached_property
    def params(self) -> int:
        """Every parameter, once."""
        return sum(t.size * t.times for t in self.tensors)

    @cached_property
    def largest(self) -> int:
        """Parameters of the largest tensor."""
        return max(t.size for t in self.tensors)

    @cached_property
    def linears(self) -> tuple[Tensor, ...]:
        """The weights of linear layers, without the head: what LoRA adapts and quantization stores."""
        return tuple(t for t in self.tensors if t.kind == "linear" and not t.bias)

    @cached_property
    def layer(self) -> int:
        """Parameters of a mean layer."""
        return sum(t.size * t.times for t in self.tensors if t.times > 1) // max(self.shape.layers, 1)

    @cached_property
    def head(self) -> int:
        """Parameters of the tensor that makes the logits: the head, or the embedding that it is tied to."""
        return max((t.size for t in self.tensors if t.kind in ("head", "embedding")), default=0)

    def targets(self, modules: tuple[str, ...] | str) -> Iterator[Tensor]:
        """Yield the linear layers that LoRA adapts: by the last part of their names, or all-linear."""
        wanted = (modules,) if isinstance(modules, str) else modules
        return (t for t in self.linears if "all-linear" in wanted or any(_ends_with(name, t.module) for name in wanted))


def _ends_with(target: str, module: str) -> bool:
    """Return whether a target names this module: in full, or as the end of a path (self_attn.q_proj)."""
    return target == module or target.endswith(f".{module}")
