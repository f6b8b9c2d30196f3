"""Measure what one layer of each model family keeps for the backward pass; writes dstui/forecast/data/activations.json.

    python tests/bench/measure_activations.py [FAMILY…]

Runs real forward and backward passes of transformers' modules on the CPU, in bf16, with the bytes that torch's allocator reports. Per
token and layer they are sums of the layer's widths: of the hidden state, of the attention (heads x head size), of the MLP. Several sizes
give these coefficients; the residual is printed. `eager` is what a layer additionally needs per head and position if the attention matrix
is stored. Dropout is as in the family, except for that of the attention, for which the CPU has no fused kernel. Run it again for a new
family or a new release of transformers.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import CONFIG_MAPPING, AutoModel

OUT = Path(__file__).parent.parent.parent / "dstui" / "forecast" / "data" / "activations.json"
TOKENS = 512
SIZES = ((128, 2, 64, 256), (128, 4, 64, 384), (192, 3, 64, 256), (256, 4, 64, 1024), (256, 2, 64, 512), (192, 6, 64, 640))
"""Hidden size, heads, head size, MLP width."""
Size = tuple[int, int, int, int]
MAX_LEFT = 0.08
EAGER_ONLY = ("t5", "bloom", "gemma2")
"""transformers has no fused attention for these."""
MODELS: dict[str, dict[str, Any]] = {
    "llama": {}, "qwen2": {}, "qwen3": {}, "gemma": {}, "gemma2": {}, "gemma3_text": {}, "phi": {}, "phi3": {"pad_token_id": 0}, "olmo": {}, "olmo2": {},
    "starcoder2": {}, "cohere": {}, "stablelm": {}, "gpt_neox": {}, "opt": {}, "gpt2": {}, "bloom": {}, "bert": {}, "t5": {}, "bart": {},
    "mixtral": {"num_local_experts": 4},
    "qwen2_moe": {"num_experts": 4},
    "qwen3_moe": {"num_experts": 4},
}  # fmt: skip


def config_of(family: str, size: Size, layers: int, attention: str) -> Any:
    """Return a configuration of this size, with every family's own names."""
    hidden, heads, of_head, width = size
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    drops = dict.fromkeys(("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"), 0.0)
    if family == "gpt2":
        own = {"n_embd": hidden, "n_head": heads, "n_layer": layers, "n_inner": width, "n_positions": TOKENS}
    elif family == "bloom":
        own = {"hidden_size": hidden, "n_head": heads, "n_layer": layers}
    elif family == "t5":
        own = {"d_model": hidden, "num_heads": heads, "d_kv": of_head, "d_ff": width, "num_layers": layers, "num_decoder_layers": 0}
    elif family == "bart":
        own = {"d_model": hidden, "encoder_layers": layers, "decoder_layers": 1, "encoder_ffn_dim": width, "encoder_attention_heads": heads}
        own |= {"decoder_ffn_dim": width, "decoder_attention_heads": heads}
    else:
        own = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads}
        own |= {"intermediate_size": width, "ffn_dim": width, "moe_intermediate_size": width, "shared_expert_intermediate_size": width}
        own |= {"head_dim": of_head, "word_embed_proj_dim": hidden, "max_position_embeddings": 4 * TOKENS}
        own |= {"num_experts_per_tok": used_by(size)}
    if family == "stablelm":
        del own["head_dim"]
    kind = CONFIG_MAPPING[family]
    config = kind(**{"vocab_size": 64, **ends, **drops, **own, **MODELS[family]})
    config._attn_implementation = attention
    config.use_cache = False
    return config


def used_by(size: Size) -> int:
    """Return how many of four experts a token passes through."""
    return 1 + size[1] % 3


def measured(
    family: str, size: Size, layers: int, *, checkpointing: bool, frozen: bool = False, attention: str = "", dtype: Any = torch.bfloat16
) -> tuple[float, float]:
    """Return the bytes per token alive after the forward pass, and the peak of the backward pass besides the layers' inputs."""
    torch.manual_seed(0)
    config = config_of(family, size, layers, attention or ("eager" if family in EAGER_ONLY else "sdpa"))
    model = AutoModel.from_config(config, dtype=dtype)
    model = model.encoder if family in ("t5", "bart") else model
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for parameter in model.parameters():
        parameter.requires_grad = not frozen
        parameter.grad = None if frozen else torch.zeros_like(parameter)
    inputs = torch.randn(1, TOKENS, size[0], dtype=dtype, requires_grad=True)
    inputs.grad = torch.zeros_like(inputs)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        mark("start")
        out = model(inputs_embeds=inputs).last_hidden_state
        mark("forward ended")
        out.backward(out.detach())
        mark("end")
    marks, memory = {}, []
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            memory.append((event.start_ns(), event.nbytes()))
        elif event.name().startswith("mark "):
            marks[event.name()[5:]] = event.start_ns()
    memory.sort()
    live = sum(n for when, n in memory if marks["start"] <= when < marks["forward ended"])
    now = most = live
    for when, change in memory:
        if marks["forward ended"] <= when < marks["end"]:
            now += change
            most = max(most, now)
    return live / TOKENS, most / TOKENS - dtype.itemsize * size[
        0
    ] * layers  # the first layer's input is not counted, but the last one's output is


def mark(name: str) -> None:
    with record_function(f"mark {name}"):
        pass


def terms(family: str, size: Size, own_heads: bool) -> list[float]:
    """Return the widths of one layer: hidden, attention, MLP (of a token's experts), hidden of each expert, heads x positions.

    If the attention is always as wide as the hidden state, and the MLP four times that, one number stands for all.
    """
    hidden, heads, of_head, width = size
    used = used_by(size) if MODELS[family].keys() & {"num_experts", "num_local_experts"} else 0
    mlp = 0 if family == "bloom" else width * (used + (family == "qwen2_moe")) if used else width
    return [hidden, heads * of_head * own_heads, mlp, hidden * used, heads * TOKENS * (family in EAGER_ONLY)]


def fitted(family: str, values: list[float], least: list[float] | None = None) -> list[float]:
    """Return the coefficients of the widths.

    Whether the family uses head_dim follows from which fits better. If no widths explain the measurement (T5's position bias is shared by
    all layers), returns a third more than `least`.
    """
    tries = []
    for own_heads in (False, True):
        rows = numpy.array([terms(family, size, own_heads) for size in SIZES], dtype=float)
        found, *_ = numpy.linalg.lstsq(rows, numpy.array(values), rcond=None)
        tries.append((float(numpy.max(numpy.abs(rows @ found / numpy.array(values) - 1))), [round(float(c), 2) for c in found]))
    worst, coefficients = min(tries)
    print(f"{family:<12} {coefficients}  left over {worst:.1%}", flush=True)
    return [round(c * 4 / 3, 2) for c in least] if least and worst > MAX_LEFT else coefficients


def of_layer(family: str, size: Size, **how: Any) -> tuple[float, float]:
    """Return the bytes per token that a layer keeps, and that its recomputation and backward pass need."""
    two, _ = measured(family, size, 2, checkpointing=False, **how)
    four, _ = measured(family, size, 4, checkpointing=False, **how)
    _, most = measured(family, size, 2, checkpointing=True, **how)
    return (four - two) / 2, most


def family_of(family: str) -> dict[str, list[float]]:
    """Return all measurements of a family."""
    found: dict[str, list[float]] = {}
    ways: dict[str, dict[str, Any]] = {"": {}, "_frozen": {"frozen": True}, "_fp32": {"dtype": torch.float32}}
    for name, how in ways.items():
        pairs = [of_layer(family, size, **how) for size in SIZES]
        found[f"keep{name}"] = fitted(family, [keep for keep, _ in pairs])
        found[f"work{name}"] = fitted(family, [work for _, work in pairs], found[f"keep{name}"])
    if family not in EAGER_ONLY:
        size = SIZES[3]
        pairs = [of_layer(family, size, attention=attention) for attention in ("eager", "sdpa")]
        found["eager"] = [round((pairs[0][n] - pairs[1][n]) / (size[1] * TOKENS), 2) for n in (0, 1)]
    return found


def main() -> None:
    torch.set_num_threads(1)
    known = json.loads(OUT.read_text())["families"] if OUT.exists() else {}
    OUT.parent.mkdir(exist_ok=True)
    about = "bytes per token and layer in bf16, times: hidden, attention, MLP width, hidden of each expert, heads x positions"
    for family in sys.argv[1:] or MODELS:
        known[family] = family_of(family)
        data = {
            "about": about,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "families": dict(sorted(known.items())),
        }
        OUT.write_text(re.sub(r"\[\s+([^]]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", json.dumps(data, indent=1)) + "\n")


if __name__ == "__main__":
    main()
