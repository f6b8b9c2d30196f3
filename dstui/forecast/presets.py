"""Sizes of well-known models by hub id, from their `config.json`, so that a forecast needs no network.

`data/presets.json`: id -> the sizes, or the id of a model with the same tensors (vicuna: LLaMA). `_source` says where the numbers come
from, which may be the `config.json` of a copy or fine-tune; `tests/long/presets_from_litgpt.py` generates those of litgpt's table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "presets.json"


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return hub id -> the sizes in its `config.json`, or in that of its base model."""
    written: Mapping[str, Mapping[str, Any] | str] = json.loads(DATA.read_bytes())
    sizes = {name: value for name, value in written.items() if not isinstance(value, str)}
    return sizes | {name: sizes[value] for name, value in written.items() if isinstance(value, str)}


@cache
def _by_base() -> Mapping[str, str]:
    """Return names without their variant words -> the first hub id of that name."""
    found: dict[str, str] = {}
    for key in presets():
        found.setdefault(base_name(key), key)
    return {base: key for base, key in found.items() if base}


@cache
def _by_lower() -> Mapping[str, str]:
    return {key.lower(): key for key in presets()}


@cache
def _by_last() -> Mapping[str, str]:
    """Return the last parts of hub ids -> the first hub id with it."""
    found: dict[str, str] = {}
    for key in presets():
        found.setdefault(key.lower().rpartition("/")[2], key)
    return found


def preset(name: str) -> Mapping[str, Any] | None:
    """Return the sizes of a model by its hub id, ignoring case.

    A copy in a folder or another account (AI-ModelScope/phi-2) has those of the model of this name; a fine-tuned model has those of its
    base if only variant words differ.
    """
    lower = name.lower().rstrip("/")
    last = lower.rpartition("/")[2]
    found = _by_lower().get(lower) or _by_last().get(last) or _by_last().get(UNPACKED.sub("", last)) or _by_base().get(base_name(name))
    return presets()[found] if found else None


def tuned_from(name: str) -> str | None:
    """Return the known model that a hub id names: most such models are fine-tunes of it.

    The name is at the end (Hermes-3-Llama-3.1-8B), at the beginning (Qwen2.5-Math-7B-x), or around another (Llama-3.1-Tulu-3-8B).
    """
    mine = base_name(name)
    if not mine or OTHERWISE.search(mine):
        return None
    found = [base for base in _by_base() if mine.endswith((f"-{base}", f"-{RELEASE.sub('', base)}")) or mine.startswith(f"{base}-")]
    around = (AROUND.fullmatch(base) for base in _by_base())
    found = found or [one[0] for one in around if one and mine.startswith(f"{one[1]}-") and mine.endswith(f"-{one[2]}")]
    return _by_base()[max(found, key=len)] if found else None


UNPACKED = re.compile(r"-(?:bf16|fp16)$")
"""The end of the name of a copy in 16 bits of a model whose own files have fewer."""
QUANTIZED_NAME = re.compile(r"[-_](?:(gptq|awq)(?:[-_](?:int)?(4|8)(?:bits?)?)?|(bnb)-4bit|int(4|8)|fp(8)|(?:nv|mx)fp4)$", re.I)
"""The end of the name of a quantized copy: its method, and its bits if they are not 4."""


def stored_name(name: str) -> tuple[str, str]:
    """Return the name of the model that a quantized copy was made from, and how the copy is stored; the same name and "" for others."""
    found = QUANTIZED_NAME.search(name.rstrip("/"))
    if found is None:
        return name, ""
    bits = found[2] or found[4] or found[5] or "4"
    return name[: found.start()], "nf4" if found[3] else f"{bits} bits"


AROUND = re.compile(r"([a-z]+-?\d(?:\.\d)?)-(\d+(?:\.\d)?b)")
"""A family with its version, and a size: llama-3.1 and 8b."""
OTHERWISE = re.compile(r"vision|video|audio|voice|speech|ocr|omni|llava|clip|vl[am]?(?=-|$)|prun|minitron|draft|eagle|reward")
"""Words of models that have more or fewer tensors than the one they name."""
RELEASE = re.compile(r"-v\d\.\d$")
"""The release of a model of which all have the same sizes."""
SIZE = re.compile(r"\d[bm]\d?(?=-|$)")
VARIANTS = re.compile(
    r"-(?:instruct|chat|it|pt|base|hf|sft|dpo|rm|simpo|thinking|python|mono|deduped|tldr|mixture|mt|full|embedding|reranker|bnb-4bit|bf16|fp16|(?!0414)\d{4})(?=-|$)"
)
"""Words in a name about how a model was trained, which say nothing about its size. GLM-4-9B-0414 is another model than GLM-4-9B."""

VERSION = re.compile(r"\bv(\d)-(\d)(?=-|$)")
"""v1-5, if the model is called v1.5."""


def base_name(name: str) -> str:
    """Return the last part of a name without variant words; "" if it names no size, since comparing is then unsafe."""
    lower = name.lower().rstrip("/").rpartition("/")[2].removeprefix("meta-")
    return VERSION.sub(r"v\1.\2", VARIANTS.sub("", lower)) if SIZE.search(lower) else ""
