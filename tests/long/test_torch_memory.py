"""What torch itself allocates, against the constants of the forecast: optimizers on lists of tensors, and selective checkpointing.

Both run on the CPU, whose allocator reports each allocation to the profiler. The lists (foreach) are what a GPU uses by default.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import LlamaConfig, LlamaModel

from dstui.forecast.activations import activations
from dstui.forecast.model import facts_of_config
from dstui.forecast.setup import Setup
from dstui.forecast.states import STEP_BYTES

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
import measure_activations as measured

SIZE = 1 << 20
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "torch_adamw": (torch.optim.AdamW, {"foreach": True}),
    "torch_fused_adamw": (torch.optim.AdamW, {"fused": True}),
    "rmsprop": (torch.optim.RMSprop, {"foreach": True}),
    "rmsprop_momentum": (torch.optim.RMSprop, {"foreach": True, "momentum": 0.9}),
    "adagrad": (torch.optim.Adagrad, {"foreach": True}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "foreach": True, "momentum": 0.9}),
}


def peak_of(profiled: Any) -> int:
    """Return the peak of what was allocated while profiling."""
    events = sorted((e.start_ns(), e.nbytes()) for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]")
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizer_step_allocates_what_the_forecast_adds(name: str, dtype: torch.dtype) -> None:
    kind, options = OPTIMIZERS[name]
    parameters = [torch.nn.Parameter(torch.randn(SIZE, dtype=dtype)) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = kind(parameters, **options)
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        optimizer.step()
    assert peak_of(profiled) / (4 * SIZE) == pytest.approx(STEP_BYTES.get(name, 0) * dtype.itemsize / 4, abs=0.01)


def every_second_product(counted: dict[bool, int], context: Any, op: Any, *_args: Any, **_named: Any) -> CheckpointPolicy:
    """Keep the attention's result and every second matrix product, as torchtitan does."""
    if op is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
        return CheckpointPolicy.MUST_SAVE
    if op is not torch.ops.aten.mm.default:
        return CheckpointPolicy.PREFER_RECOMPUTE
    counted[context.is_recompute] = counted.get(context.is_recompute, 0) + 1
    return CheckpointPolicy.MUST_SAVE if counted[context.is_recompute] % 2 else CheckpointPolicy.PREFER_RECOMPUTE


def kept_by(config: LlamaConfig) -> int:
    """Return the bytes that are alive after the forward pass."""
    torch.manual_seed(0)
    model = LlamaModel._from_config(config, dtype=torch.bfloat16).train()
    counted: dict[bool, int] = {}
    contexts = partial(create_selective_checkpoint_contexts, partial(every_second_product, counted))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": contexts})
    inputs = torch.randn(1, measured.TOKENS, config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        out = model(inputs_embeds=inputs).last_hidden_state
        measured.mark("forward ended")
    events = list(profiled.profiler.kineto_results.events())
    end = next(e.start_ns() for e in events if e.name() == "mark forward ended")
    live = sum(e.nbytes() for e in events if e.name() == "[memory]" and e.start_ns() < end)
    assert out.requires_grad
    return int(live)


@pytest.mark.parametrize(("hidden", "heads", "keys", "width"), [(256, 4, 4, 1024), (256, 4, 1, 640), (384, 6, 2, 1344)])
def test_selective_checkpointing_keeps_what_the_forecast_says(hidden: int, heads: int, keys: int, width: int) -> None:
    sizes = {"hidden_size": hidden, "intermediate_size": width, "num_attention_heads": heads, "num_key_value_heads": keys}
    two, four = (LlamaConfig(vocab_size=64, num_hidden_layers=n, max_position_embeddings=2048, use_cache=False, **sizes) for n in (2, 4))
    really = (kept_by(four) - kept_by(two)) / 2
    shape = facts_of_config({"model_type": "llama", "vocab_size": 64, "num_hidden_layers": 1, **sizes}).shape
    assert shape is not None
    setup = Setup(precision="bf16", micro_batch=1, sequence=measured.TOKENS, checkpointing=True, recompute="selective")
    said = activations(setup, shape).kept
    print(f"{hidden} {heads} {keys} {width}: measured {really:,.0f}, forecast {said:,.0f} ({said / really - 1:+.1%})")
    assert said == pytest.approx(really, rel=0.12)
