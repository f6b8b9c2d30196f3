"""An engine with the methods of DeepSpeed's engine that the hook wraps and calls."""

import torch

__version__ = "0"


class DeepSpeedEngine:
    """An engine that counts its steps."""

    device = torch.Tensor.device
    optimizer = lr_scheduler = None
    global_steps = global_samples = skipped_steps = 0

    def __init__(self, model: torch.Module, config: dict) -> None:
        self._modules = {"module": model}
        self._config = type("Config", (), {"_param_dict": config})
        self.module, self._global_grad_norm = model, 1.5
        self.train_batch_size = self.train_micro_batch_size_per_gpu = self.gradient_accumulation_steps = lambda: 1
        self.fp16_enabled = self.bfloat16_enabled = lambda: False
        self.get_lr = lambda: [1e-3]

    def __call__(self, number: float) -> torch.Tensor:
        return self.forward(number)

    def forward(self, number: float) -> torch.Tensor:
        return self.module(number)

    def backward(self, loss: torch.Tensor) -> None:
        pass

    def step(self) -> None:
        self.global_steps += 1
        self.global_samples += 1

    def eval(self) -> "DeepSpeedEngine":
        return self


def initialize(model: torch.Module, config: dict) -> tuple:
    return DeepSpeedEngine(model, config), None, None, None
