"""Read the model from the options of a training script: the Plan's `model:` section. Pure.

The names are those of transformers' TrainingArguments, of TRL, LLaMA-Factory, axolotl, alignment-handbook, LLaVA, FastChat and scripts
derived from them. Values with shell text are left out, and those with a hole, except the model's: filling the hole fills it too.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from dstui.adopt.sizes_in_options import config_in_options, is_on
from dstui.plan.holes import HOLE

MODEL = (
    "model_name_or_path",
    "base_model",
    "model_id",
    "model_name",
    "pretrained_model_name_or_path",
    "llm_model_name_or_path",
    "actor_model_name_or_path",
    "pretrain",
    "model",
    "model_path",
    "config_name",
)
"""Options that name the model, the most reliable first."""
PREFIXES = ("", "model.", "actor.", "data.")
"""Prefixes of nested option parsers: --model.model_name_or_path."""
SEQUENCE = (
    *("model_max_length", "max_seq_length", "max_sequence_length", "sequence_len", "cutoff_len", "max_seq_len", "block_size"),
    *("max_length", "seq_length", "tokenizer_model_max_length", "max_len"),
)
LIMITS = ("model_max_length", "max_seq_length", "cutoff_len", "max_seq_len", "max_length", "tokenizer_model_max_length", "sequence_len")
"""Those of them up to which samples are cut, and not filled unless FILLED is on."""
FILLED = ("packing", "sample_packing", "neat_packing", "pad_to_max_length", "pad_to_sequence_len", "group_texts", "pack_to_max_length")
TWO_PARTS = (
    *(("max_prompt_length", "max_completion_length"), ("max_source_length", "max_target_length")),
    *(("prompt_max_len", "generate_max_len"), ("max_prompt_seq_len", "max_answer_seq_len")),
)
"""Options that say a sequence in two parts: TRL's online methods, ChatGLM, OpenRLHF, DeepSpeed-Chat."""
CHECKPOINTING = (
    *("gradient_checkpointing", "gradient_checkpointing_enable", "grad_checkpoint", "use_gradient_checkpointing"),
    *("actor_gradient_checkpointing", "checkpoint_activations"),
)
LORA_SWITCHES = ("use_lora", "lora_enable", "use_peft", "use_peft_lora", "lora")
LORA_KINDS = ("finetuning_type", "adapter", "train_type", "sft_type", "tuner_type")
"""Options whose value is lora, qlora, full, freeze, …"""
RANK = ("lora_r", "lora_rank", "peft_lora_r", "lora_dim")
ALPHA, DROPOUT = ("lora_alpha", "peft_lora_alpha"), ("lora_dropout", "peft_lora_dropout")
TARGETS = ("lora_target_modules", "lora_target", "target_modules")
FOUR_BITS = ("load_in_4bit", "use_4bit_quantization", "q_lora", "use_qlora")
EIGHT_BITS = ("load_in_8bit", "use_8bit_quantization")
BITS = ("bits", "quantization_bit", "quant_bits")
FLASH = ("use_flash_attn", "flash_attn", "flash_attention", "use_flash_attention", "use_flash_attention_2")
ATTENTION: Mapping[str, str] = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash_attention_2": "flash",
    "flash_attention_3": "flash3",
    "fa2": "flash",
}
LIGER = ("use_liger", "use_liger_kernel", "enable_liger_kernel")
"""Options that replace norms, rotation and MLP as well as the loss."""
FUSED = (*LIGER, "liger_fused_linear_cross_entropy")
PARTS = re.compile(r"(?:freeze|tune|unfreeze)_\w+|vision_tower|image_tower|video_tower|mm_vision_tower")
"""Options that freeze a part of the model or add another one: the user must then say what is trained."""
OPEN = re.compile(r"[$`*{}<>\s]")
"""A hole, shell text, a pattern or a placeholder."""
MODULE = re.compile(r"[A-Za-z_][\w.]*")
STORED = re.compile(r"-bnb-4bit$")


def model_section(options: Mapping[str, str], folder: str = "", script: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the Plan's `model:` section, with notes. `folder`: the script's working directory, relative to the Plan's folder."""
    source = _source(options, folder)
    if source is None:
        return _built_model(options, script)
    lora = _lora(options)
    found = {
        "source": source,
        "sequence_length": _sequence(options),
        **recomputation(options),
        "lora": lora,
        "quantization": _quantization(options, source) if lora else None,
        "attention": _attention(options),
        "fused_loss": _switch(options, FUSED) or None,
        "compiled": _switch(options, ("torch_compile",)) or None,
    }
    parts = [f"--{name} {value}" for name, value in options.items() if PARTS.fullmatch(name) and value.lower() != "false"]
    notes = [f"{', '.join(parts[:4])}: the forecast counts {source} alone, all of it trained (model.trainable sets less)"] if parts else []
    if lora is not None and _whole(_first(options, RANK)) is None:
        notes.append("LoRA without a rank in the launch: model.lora.r is PEFT's default, 8")
    return {name: value for name, value in found.items() if value is not None}, notes


def _built_model(options: Mapping[str, str], script: str) -> tuple[dict[str, Any], list[str]]:
    """Return the section of a model whose sizes the options give; {} if they do not."""
    config, notes = config_in_options(options, script)
    if not config:
        return {}, notes
    found = {
        "activation_checkpointing": "gradient_checkpointing=true" in options.get("config_overrides", "").lower(),
        "source": json.dumps(config),
        "sequence_length": _sequence(options),
        **recomputation(options),
        "attention": _attention(options) or ("eager" if config["model_type"] != options.get("model_type") else None),
    }
    return {name: value for name, value in found.items() if value is not None}, notes


def recomputation(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of `model:` about recomputation that the options tell. Megatron's "selective" is the attention's matrix alone."""
    granularity = options.get("recompute_granularity", "selective" if is_on(options, "recompute_activations") else "")
    if granularity in ("full", "selective"):
        return {"activation_checkpointing": True, **({"recompute": "attention"} if granularity == "selective" else {})}
    switch = _switch(options, CHECKPOINTING)
    return {} if switch is None else {"activation_checkpointing": switch}


def longest_sample(options: Mapping[str, str]) -> str:
    """Return the option that only says how long a sample may be; "" if samples are filled to a length, or none is said."""
    if any(_switch(options, (name,)) for name in FILLED):
        return ""
    return next((name for name in LIMITS if any(prefix + name in options for prefix in PREFIXES)), "")


def names_model(options: Mapping[str, str]) -> bool:
    """Return whether an option names the model, even if its value is a hole."""
    return any(prefix + name in options for prefix in PREFIXES for name in MODEL)


def _first(options: Mapping[str, str], names: tuple[str, ...], *, holes: bool = False) -> str | None:
    """Return the value of the first of these options that is set and not empty. `holes`: also one with ${NAME}."""
    for name in names:
        for prefix in PREFIXES:
            value = options.get(prefix + name)
            if value and not OPEN.search(HOLE.sub("", value) if holes else value):
                return value
    return None


def _source(options: Mapping[str, str], folder: str) -> str | None:
    value = _first(options, MODEL, holes=True)
    if value is None or value.startswith("-") or (value == options.get("model") and "/" not in value):
        return None
    if value.startswith(("./", "../")) and folder and not OPEN.search(folder):
        return posixpath.normpath(posixpath.join(folder, value))
    return value


def _sequence(options: Mapping[str, str]) -> int | None:
    length = _whole(_first(options, SEQUENCE))
    if length is not None:
        return length
    parts = ([_whole(_first(options, (name,))) or 0 for name in both] for both in TWO_PARTS)
    return next((sum(both) for both in parts if all(both)), None)


def _switch(options: Mapping[str, str], names: tuple[str, ...]) -> bool | None:
    """Return whether one of several names of a switch is on; None if none is set."""
    value = _first(options, names)
    return None if value is None else value.lower() in ("true", "1", "yes", "on")


def _lora(options: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the section `lora`; None if all weights are trained."""
    kind, rank = _first(options, LORA_KINDS), _whole(_first(options, RANK))
    on = [found for name in LORA_SWITCHES if (found := _switch(options, (name,))) is not None]
    on += [True] if _switch(options, ("q_lora", "use_qlora")) else []  # if it is off, LoRA stays unchanged
    wanted = "lora" in kind.lower() if kind is not None else any(on) if on else rank is not None
    if not wanted:
        return None
    given: dict[str, Any] = {
        "r": rank or 8,
        "alpha": _number(_first(options, ALPHA)),
        "dropout": _number(_first(options, DROPOUT)),
        "target_modules": None,
    }
    names = [name for name in (_first(options, TARGETS) or "").split(",") if name]
    if names and "all" not in names and all(map(MODULE.fullmatch, names)):
        given["target_modules"] = names
    return {name: value for name, value in given.items() if value is not None}


def _quantization(options: Mapping[str, str], source: str) -> str | None:
    kind, bits = _first(options, LORA_KINDS) or "", _whole(_first(options, BITS))
    if bits == 4 or kind == "qlora" or STORED.search(source) or any(_switch(options, (name,)) for name in FOUR_BITS):
        return "nf4"
    return "int8" if bits == 8 or any(_switch(options, (name,)) for name in EIGHT_BITS) else None


def _attention(options: Mapping[str, str]) -> str | None:
    value = _first(options, ("attn_implementation", "ds.attn_implementation", "attn_impl", "flash_attn"))
    if value is not None and value in ATTENTION:
        return ATTENTION[value]
    return "flash" if _switch(options, FLASH) or _switch(options, ("disable_flash_attn2",)) is False else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and 0 < int(text[:10]) < 10**9 else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return (int(value) if value.is_integer() else value) if 0 <= value < 1e9 else None
