"""Models that people train, by their hub ids: what their `config.json` says of sizes, so that a forecast needs no network."""

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
    """Hub id -> the sizes in its `config.json`."""
    known: Mapping[str, Mapping[str, Any]] = json.loads(DATA.read_bytes())
    return known


def preset(name: str) -> Mapping[str, Any] | None:
    """The sizes of a model by its hub id, in any case; of a fine-tuned one those of its base where only such words differ."""
    known = presets()
    exact = next((key for key in known if key.lower() == name.lower()), None)
    if exact is None and (wanted := _base(name)):
        exact = next((key for key in known if _base(key) == wanted), None)
    return known[exact] if exact else None


SIZE = re.compile(r"\d[bm]\b")
VARIANTS = re.compile(r"-(?:instruct|chat|it|pt|base|hf|sft|dpo|thinking|\d{4})(?=-|$)")
"""Parts of a name that say how a model was trained on, never how large it is."""


def _base(name: str) -> str:
    """The name without its variants; empty where the name tells no size, so that nothing is left to compare safely."""
    lower = name.lower()
    return VARIANTS.sub("", lower) if "/" in lower and SIZE.search(lower) else ""
