"""The part of torch that the hook uses, for interpreters without torch."""

import math

__version__ = "0"


class Tensor:
    """A number on the CPU."""

    device = type("device", (), {"type": "cpu"})
    dtype, requires_grad = "float32", True

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def numel(self) -> int:
        return 1

    def item(self) -> float:
        return self.value


class Module:
    """A model that computes a cosine."""

    training = True

    def parameters(self) -> list:
        return [Tensor()] * 3

    def __call__(self, number: float) -> Tensor:
        return Tensor(math.cos(number))
