"""Whose file a text is, by its first look: cheap, since every file that is opened is looked at."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["plan", "ds_config", "accelerate", "command", "hostfile", "env"]
SIGNS = ("compute_environment", "distributed_type", "deepspeed_config", "mixed_precision", "num_processes")
"""Keys of which no Plan has one at its top."""
# Most files that are opened are Plans: `re` compiles these when a text is none, and keeps them.
LAUNCH = r"(?m)^[^#\n]*\b(?:deepspeed|accelerate[ \t]+launch|torchrun|python[\d.]*)[ \t]+\S"
SLOTS = r"\S+\s+slots=\d+\b.*"
VARIABLE = r"[A-Za-z_]\w*=.*"


def is_accelerate(text: str) -> bool:
    """Whether a YAML text is an accelerate configuration rather than a Plan; also as a web page shows it, with `\\_` for `_`."""
    plain = text.replace("\\_", "_")
    return any(plain.startswith(f"{sign}:") or f"\n{sign}:" in plain for sign in SIGNS)


def is_launch(text: str) -> bool:
    """Whether a text holds a command that starts training."""
    return re.search(LAUNCH, text) is not None


def is_hostfile(text: str) -> bool:
    """Whether every line that says something is `HOST slots=N`."""
    return _every_line(text, SLOTS)


def is_env_file(text: str) -> bool:
    """Whether every line that says something is `NAME=value`."""
    return _every_line(text, VARIABLE)


def _every_line(text: str, pattern: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return bool(lines) and all(re.fullmatch(pattern, line) for line in lines)
