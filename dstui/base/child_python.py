"""Options and environment for child interpreters that only look, so that they never import or run code from the current folder.

The folder may come from anywhere and contain a `torch.py`, a `json.py` or a `deepspeed/`. Python puts the current folder on the import path
for `-c`, for a program on standard input, and for every empty or relative entry of PYTHONPATH. `-P` forbids that only from 3.11 on. An
interpreter named by a Plan also gets `-I`: it imports nothing from PYTHONPATH or the user's own site-packages, where a sitecustomize.py
would run at its start. dstui's own interpreter does not get `-I`, since dstui may be installed there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

NEUTRAL = "/"
"""The working directory of such a child: "" on its import path then means this folder, in which only root can write."""


def options(python: str) -> tuple[str, ...]:
    """Return the options for an interpreter that only looks: -I for any but dstui's own."""
    return () if python == sys.executable else ("-I",)


def environment(env: Mapping[str, str] | None = None, first: str = "") -> dict[str, str]:
    """Return the environment for a child that only looks: `env` (default: that of this process) with `first` in front of its PYTHONPATH."""
    kept = dict(os.environ if env is None else env)
    entries = [entry for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if _elsewhere(entry)]
    if path := os.pathsep.join(filter(None, (first, *entries))):
        kept["PYTHONPATH"] = path
    return kept | {"PYTHONSAFEPATH": "1"}


def _elsewhere(entry: str) -> bool:
    """Return whether an entry of PYTHONPATH is absolute and not the current folder."""
    path = Path(entry)
    try:
        return path.is_absolute() and not path.samefile(".")
    except OSError:  # does not exist
        return path.is_absolute()
