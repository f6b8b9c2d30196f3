"""Models that people train, by their hub ids: what their `config.json` says of sizes, so that a forecast needs no network."""

from __future__ import annotations

import json
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
    """The sizes of a model by its hub id, in any case; a fine-tuned one's are those of the model whose name it begins with."""
    known = presets()
    exact = next((key for key in known if key.lower() == name.lower()), None)
    if exact is None:
        lower = name.lower()
        exact = max((key for key in known if "/" in key and lower.startswith(f"{key.lower()}-")), key=len, default=None)
    return known[exact] if exact else None
