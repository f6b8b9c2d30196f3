"""Whose file a text is, by its first look: cheap, since every file that is opened is looked at."""

from __future__ import annotations

SIGNS = ("compute_environment", "distributed_type", "deepspeed_config", "mixed_precision", "num_processes")
"""Keys of which no Plan has one at its top."""


def is_accelerate(text: str) -> bool:
    """Whether a YAML text is an accelerate configuration rather than a Plan."""
    return any(text.startswith(f"{sign}:") or f"\n{sign}:" in text for sign in SIGNS)
