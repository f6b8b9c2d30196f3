"""All the advice for a machine: every piece that there is, asked in turn."""

from __future__ import annotations

from dataclasses import replace

from dstui.machine import health, placement, variables  # noqa: F401 - importing them registers their pieces
from dstui.machine.advice import PIECES, Advice, Wish
from dstui.machine.snapshot import Machine


def advise(machine: Machine, wish: Wish | None = None) -> list[Advice]:
    """All advice for a job on a machine (for any job where `wish` is not given), the gravest first."""
    wish = wish or Wish()
    found = [
        replace(advice, level=advice.level or known.level, code=known.code, source=known.source)
        for known in PIECES.values()
        for advice in known.judge(machine, wish)
    ]
    return sorted(found, key=lambda advice: ("error", "warning", "info").index(advice.level or "info"))
