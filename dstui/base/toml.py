"""TOML, where Python has a parser of it (3.11 and later)."""

from __future__ import annotations

import importlib
from typing import Any


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; none if it is not valid, or this Python cannot read it."""
    try:
        found: dict[str, Any] = importlib.import_module("tomllib").loads(text)
    except (ImportError, ValueError, RecursionError):
        return {}
    return found
