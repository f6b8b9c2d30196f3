"""ZenFlow in two releases: what DeepSpeed does with a configuration, as recorded by tests/long/test_zenflow.py."""

from __future__ import annotations

from typing import Any

from dstui.check import check_config
from tests.machines import NO_GPU

ADAM = {"type": "AdamW", "params": {"lr": 1e-3}}
TORCH = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
CPU = {"offload_optimizer": {"device": "cpu"}}


def config(stage: int, flow: dict[str, Any], *, allowed: bool = True, offload: bool = True) -> dict[str, Any]:
    """Return a configuration."""
    zero = {"stage": stage, "zenflow": flow, **(CPU if offload else {})}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": ADAM if offload else TORCH,
        "zero_allow_untested_optimizer": allowed,
        "zero_optimization": zero,
    }


FLOWS = {
    "every step": config(2, {"update_interval": -1}),
    "divided by zero": config(2, {"update_interval": 0}),
    "every second step": config(2, {"update_interval": 2}),
    "without offload": config(1, {}, offload=False),
    "without offload at stage 2": config(2, {}, offload=False),
    "not allowed": config(2, {"update_interval": 2}, allowed=False),
}
MOMENTS: dict[str, dict[str, str | None]] = {
    "0.18.2": {
        "every step": None,
        "divided by zero": "run",
        "every second step": None,
        "without offload": "initialize",
        "without offload at stage 2": "initialize",
        "not allowed": "initialize",
    },
    "0.19.8": {
        "every step": "parse",
        "divided by zero": "parse",
        "every second step": None,
        "without offload": "initialize",
        "without offload at stage 2": "initialize",
        "not allowed": None,
    },
}
"""When DeepSpeed refuses it; None if it trains."""


def our_moment(name: str, version: str) -> str | None:
    """Return when dstui says that it is refused."""
    found = [f.when for f in check_config(FLOWS[name], NO_GPU, world_size=1, deepspeed_version=version) if f.severity == "error"]
    return next((moment for moment in ("parse", "initialize", "launch", "run") if moment in found), None)
