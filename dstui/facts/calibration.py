"""Measure how fast this machine is, once and in a child process, and store the rates in the user's cache."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base import child_python
from dstui.base.files import FileProblem, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.machine.child import run_command
from dstui.machine.snapshot import Machine, known

MOST = 100
"""Machines whose rates are read."""
CHILD = Path(__file__).parents[1] / "reference" / "rates.py"
SECONDS = 240.0
"""Covers a cold import of torch, a compilation of CPU Adam, and a few seconds for each rate."""


def calibrate(machine: Machine, python: str = sys.executable) -> dict[str, float]:
    """Measure the rates of this machine and store them. Raises FileProblem if nothing could be measured."""
    lines = run_command(
        [python, *child_python.options(python), str(CHILD), *[str(gpu.index) for gpu in machine.gpus if gpu.problem is None]], SECONDS
    )
    rates = {name: float(value) for name, value in lines if isinstance(value, (int, float)) and not isinstance(value, bool)}
    reported = dict(lines)
    if not rates:
        raise FileProblem(
            f"--calibrate: nothing could be measured: {str(reported.get('failed') or reported.get('late') or 'no answer')[-300:]}"
        )
    path = _folder() / f"{machine_key(machine)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"version": 1, "rates": rates}, indent=1) + "\n", replace=True)
    return rates


def read_rates() -> dict[str, dict[str, Any]]:
    """Return the stored rates by machine key."""
    found = {}
    with suppress(OSError):
        for path in sorted(_folder().glob("*.json"))[:MOST]:
            with suppress(FileProblem, ValueError):
                data = parse_json(read_text(path))
                rates = data.get("rates") if isinstance(data, Mapping) else None
                found[path.stem] = dict(rates) if isinstance(rates, Mapping) else {}
    return found


def _folder() -> Path:
    """Return the folder with a file for each machine."""
    from platformdirs import user_cache_path

    return user_cache_path("dstui") / "rates"


def machine_key(machine: Machine) -> str:
    """Return the key of a machine: its GPUs, CPUs and name."""
    gpus = [(known(gpu.name, "?"), known(gpu.memory_total, 0)) for gpu in machine.gpus]
    reported = [known(machine.host.name, "?"), known(machine.host.cpu, "?"), known(machine.host.cpus_usable, 0), gpus]
    return hashlib.sha256(json.dumps(reported).encode()).hexdigest()[:16]
