"""Run `ranks.py` to measure what DeepSpeed holds, and forecast the same plan on CPU ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dstui.forecast.activations import activations
from dstui.forecast.memory import Needs, needs
from dstui.forecast.model import counts, facts_of_config
from dstui.forecast.read_setup import setup_of
from dstui.forecast.states import States, states
from dstui.plan.model import Model

RANKS = Path(__file__).parent / "ranks.py"
DROPS = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_embd": 256, "n_layer": 8, "n_head": 4, "vocab_size": 4096, "n_positions": 1024}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0, **DROPS}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
}
LLAMA |= {"num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 1024, "bos_token_id": 0, "eos_token_id": 0}

PRECISION: Mapping[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "bf16, 32-bit gradients": {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
    "bf16, all in 16 bits": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
    "autocast": {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}},
}
OPTIMIZER: Mapping[str, dict[str, Any]] = {
    "Adam": {"type": "AdamW", "params": {"lr": 1e-4}},
    "torch's Adam": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "SGD": {"type": "SGD", "params": {"lr": 1e-4}},
    "SGD with momentum": {"type": "SGD", "params": {"lr": 1e-4, "momentum": 0.9}},
}
CPU = {"device": "cpu", "pin_memory": False}
OFFLOAD: Mapping[str, dict[str, Any]] = {
    "": {},
    "optimizer": {"offload_optimizer": CPU},
    "optimizer and weights": {"offload_optimizer": CPU, "offload_param": CPU},
}


def config_of(stage: int, precision: str, optimizer: str = "torch's Adam", offload: str = "", **more: Any) -> dict[str, Any]:
    """Return a ds_config.json with small buckets, so that they do not hide the rest."""
    zero = {"stage": stage, "reduce_bucket_size": 1_100_000, **OFFLOAD[offload]}
    config = {"train_micro_batch_size_per_gpu": 1, "steps_per_print": 10**9, "zero_allow_untested_optimizer": True, **PRECISION[precision]}
    return {**config, "optimizer": OPTIMIZER[optimizer], "zero_optimization": zero, **more}


class Ranks:
    """The child process, as a context manager."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(RANKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.versions: dict[str, Any] = {}

    def __enter__(self) -> Ranks:
        assert self._child.stdout
        self.versions = json.loads(self._child.stdout.readline())
        return self

    def __exit__(self, *_error: object) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe:
                pipe.close()

    def measure(self, config: dict[str, Any], model: dict[str, Any], **how: Any) -> dict[str, Any]:
        """Return what each rank held, or why it could not run."""
        assert self._child.stdin and self._child.stdout
        self._child.stdin.write(json.dumps({"config": config, "model": model, **how}) + "\n")
        self._child.stdin.flush()
        answer: dict[str, Any] = json.loads(self._child.stdout.readline())
        return answer


def forecast_of(
    config: dict[str, Any], model: dict[str, Any], *, sequence: int = 32, checkpointing: bool = False, world_size: int = 2
) -> tuple[States, Needs]:
    """Return the forecast for the same ranks."""
    facts = facts_of_config(model)
    written = Model(sequence_length=sequence, activation_checkpointing=checkpointing)
    setup, _reported = setup_of(config, written, "deepspeed", ranks=world_size, nodes=1, hidden=facts.hidden, on_cpu=True)
    n = counts(facts, written, persistence=setup.persistence if setup.stage == 3 else 0)
    assert n is not None and facts.shape is not None
    s = states(setup, n)
    return s, needs(setup, n, s, activations(setup, facts.shape))


def held(s: States) -> dict[str, float]:
    """Return what stays on a rank, wherever it is, by part."""
    sums: dict[str, float] = {}
    for room in (s.gpu, s.host):
        for part, size in room.items():
            sums[part] = sums.get(part, 0.0) + size
    sums["weights"] = sums.get("weights", 0.0) + sums.pop("persistent_weights", 0.0)
    return {part: size for part, size in sums.items() if size}
