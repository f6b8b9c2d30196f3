"""Read the sizes of a model that is built from options: Megatron's, and transformers' `--model_type` with `--config_overrides`. Pure.

Sources: Megatron-LM/megatron/training/arguments.py, Megatron-DeepSpeed/megatron/arguments.py, transformers' run_clm.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SIZES = ("num_layers", "hidden_size", "num_attention_heads")
NO_DECODER = re.compile(r"bert|t5|vit|retro|ict|vision|mamba|encoder")
"""Words in the names of Megatron's scripts whose models are other than a decoder."""
VOCABULARY = ("pad_vocab_size_to", "padded_vocab_size", "vocab_size")
GPT2_ROWS, GPT2_TOKENIZER = 50257, "GPT2BPETokenizer"
DIVISOR = 128
"""Megatron's default of --make-vocab-size-divisible-by, for each part of the tensors."""
BUILT: Mapping[str, Mapping[str, int]] = {
    "gpt2": {"vocab_size": GPT2_ROWS, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12},
    "llama": {
        **{"vocab_size": 32000, "max_position_embeddings": 2048, "hidden_size": 4096, "intermediate_size": 11008},
        **{"num_hidden_layers": 32, "num_attention_heads": 32},
    },
}
"""`model_type` -> the defaults of its configuration in transformers, which --config_overrides changes."""


def config_in_options(options: Mapping[str, str], script: str) -> tuple[dict[str, Any], list[str]]:
    """Return the content of the `config.json` that the options describe, and notes; {} if they describe none."""
    if options.get("model_type") in BUILT and not {"model_name_or_path", "config_name"} & options.keys():
        return _overridden(options)
    if not is_megatron(options) or NO_DECODER.search(script.rpartition("/")[2].lower()):
        return {}, []
    return _megatron(options)


def parallel_sizes(options: Mapping[str, str]) -> tuple[int, int]:
    """Return over how many ranks Megatron splits the tensors and the layers."""
    tensors = _whole(options, "tensor_model_parallel_size") or _whole(options, "model_parallel_size")
    return tensors or 1, _whole(options, "pipeline_model_parallel_size") or _whole(options, "pipe_parallel_size") or 1


def is_megatron(options: Mapping[str, str]) -> bool:
    """Return whether the options give the model's sizes as Megatron's do."""
    return all(_whole(options, name) for name in SIZES)


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Return whether a switch is given."""
    return options.get(name, "false").lower() in ("true", "1")


def _overridden(options: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    kind = options["model_type"]
    found: dict[str, Any] = {"model_type": kind, **BUILT[kind]}
    for pair in options.get("config_overrides", "").split(","):
        name, _, value = pair.partition("=")
        if value.isdecimal():
            found[name] = int(value[:10])
    return found, []


def _megatron(options: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration of transformers' family that has the same tensors."""
    layers, hidden, heads = (_whole(options, name) for name in SIZES)
    if any(value not in ("1", "") for value in options.get("num_experts", "1").split(",")):
        return {}, ["--num-experts: a mixture of experts of Megatron's is not counted: give model.params"]
    rows, notes = _vocabulary(options)
    positions = _whole(options, "max_position_embeddings") or _whole(options, "seq_length") or 1024
    kind = options.get("position_embedding_type", "")
    gated = is_on(options, "swiglu")
    width = _whole(options, "ffn_hidden_size") or (int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden)
    if gated or kind == "rope" or is_on(options, "use_rotary_position_embeddings"):
        groups = _whole(options, "num_key_value_heads") or _whole(options, "num_query_groups")
        untied = is_on(options, "untie_embeddings_and_output_weights")
        sizes = {"hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        grouped = {"num_key_value_heads": groups} if gated and groups else {}
        family = "llama" if gated else "gpt_neox"
        return {"model_type": family, **sizes, **grouped, "vocab_size": rows, "tie_word_embeddings": not untied}, notes
    if kind == "alibi":
        return {"model_type": "bloom", "hidden_size": hidden, "n_layer": layers, "n_head": heads, "vocab_size": rows}, notes
    found = {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": width}
    return {**found, "n_positions": positions, "vocab_size": rows}, notes


def _vocabulary(options: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the rows of the embedding, padded as Megatron does."""
    rows = next((found for name in VOCABULARY if (found := _whole(options, name))), 0)
    if rows and "vocab_size" not in options:
        return rows, []
    notes = []
    if not rows and options.get("tokenizer_type", GPT2_TOKENIZER) != GPT2_TOKENIZER:
        notes = [f"--tokenizer-type {options['tokenizer_type']} has an unknown vocabulary: {GPT2_ROWS:,} rows are assumed in model.source"]
    unit = (_whole(options, "make_vocab_size_divisible_by") or DIVISOR) * parallel_sizes(options)[0]
    return -(-(rows or GPT2_ROWS) // unit) * unit, notes


def _whole(options: Mapping[str, str], name: str) -> int:
    """Return a positive whole number; 0 if the option has none."""
    value = options.get(name, "").replace("_", "")
    return int(value) if value.isdecimal() and 0 < int(value[:12]) < 10**9 else 0
