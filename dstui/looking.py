"""How a child that only looks is started: nothing that lies in the current folder is ever imported or run by it.

A folder may have come from anywhere, and in it a `torch.py`, a `json.py` or a `deepspeed/`. Python puts the current folder on the import
path for `-c` and for a program on standard input, and for every empty or relative entry of PYTHONPATH. `-P` forbids that from 3.11 on
only, and `-I` would forbid the user's own packages too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

NEUTRAL = "/"
"""Where such a child runs: "" on its import path is then this folder, in which only root can write."""


def environment(env: Mapping[str, str] | None = None, first: str = "") -> dict[str, str]:
    """`env` (our own where it is None) for a child that looks; `first` goes first on its PYTHONPATH."""
    kept = dict(os.environ if env is None else env)
    entries = [entry for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if _elsewhere(entry)]
    if path := os.pathsep.join(filter(None, (first, *entries))):
        kept["PYTHONPATH"] = path
    return kept | {"PYTHONSAFEPATH": "1"}


def _elsewhere(entry: str) -> bool:
    """Whether an entry of PYTHONPATH means the same folder wherever one is, and is not the current one."""
    path = Path(entry)
    try:
        return path.is_absolute() and not path.samefile(".")
    except OSError:  # it is not there
        return path.is_absolute()
