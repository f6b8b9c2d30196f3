"""Compare dstui's verdict with DeepSpeed's, and read the keys that the installed DeepSpeed declares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dstui
from dstui.check import check_config
from dstui.check.reference import ReferenceChecker
from tests.machines import NO_GPU

EXTRACT = Path(dstui.__file__).parent / "reference" / "extract.py"


@dataclass
class Tally:
    """The number of agreements, and every case of disagreement."""

    taken: int = 0
    refused: int = 0
    differ: list[tuple[str, dict[str, Any], int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        ours = sum(kind == "we refuse" for kind, *_ in self.differ)
        theirs = len(self.differ) - ours
        return f"{self.taken} taken by both, {self.refused} refused by both, {ours} refused by us only, {theirs} by DeepSpeed only"


def compare(config: dict[str, Any], ranks: int, version: str, reference: ReferenceChecker, tally: Tally) -> None:
    """Compare both verdicts on a configuration."""
    theirs = reference.validate(config, ranks)
    findings = check_config(config, NO_GPU, world_size=ranks, deepspeed_version=version)
    refused = [f for f in findings if f.severity == "error" and f.when == "parse"]
    if theirs.ok and not refused:
        tally.taken += 1
    elif not theirs.ok and refused:
        tally.refused += 1
    elif theirs.ok:
        tally.differ.append(("we refuse", config, ranks, f"{refused[0].code} {refused[0].message}"))
    else:
        tally.differ.append(("DeepSpeed refuses", config, ranks, f"{theirs.kind}: {theirs.message}"))


def live_records(path: str = "") -> dict[str, Any]:
    """Return the keys that the installed DeepSpeed declares, as opposed to those in the catalogue."""
    env = {**os.environ, "PYTHONPATH": path} if path else None
    done = subprocess.run([sys.executable, str(EXTRACT)], capture_output=True, text=True, check=True, env=env, timeout=120)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts
