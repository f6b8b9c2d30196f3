"""How a child that only looks is started: nothing that lies in the current folder is ever imported or run by it.

A folder may have come from anywhere, and in it a `torch.py`, a `json.py` or a `deepspeed/`. Python puts the current folder on the import
path for `-c` and for a program on standard input, and for every empty or relative entry of PYTHONPATH. `-P` forbids that from 3.11 on
only. An interpreter that a Plan names also gets `-I`: it imports nothing from PYTHONPATH and from the user's own site-packages, where a
sitecustomize.py would run at its start. dstui's own does not, since it may be installed there itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

NEUTRAL = "/"
"""Where such a child runs: "" on its import path is then this folder, in which only root can write."""


def options(python: str) -> tuple[str, ...]:
    """Return the options of an interpreter that looks: -I for any but dstui's own."""
    return () if python == sys.executable else ("-I",)


def environment(env: Mapping[str, str] | None = None, first: str = "") -> dict[str, str]:
    """Return `env` (by default our own) for a child that only looks; `first` goes first on its PYTHONPATH."""
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
    except OSError:  # it is not there
        return path.is_absolute()
