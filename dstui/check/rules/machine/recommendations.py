"""All the advice for a machine: every piece that there is, asked in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dstui.check.rules.machine import (
    health,  # noqa: F401 - importing them registers their pieces
    placement,  # noqa: F401 - importing them registers their pieces
    variables,  # noqa: F401 - importing them registers their pieces
)
from dstui.check.rules.machine.recommendation import PIECES, Advice, Wish
from dstui.machine.snapshot import Machine

MARKS = {"error": "✗", "warning": "▲", "info": "·"}


def advise(machine: Machine, wish: Wish | None = None) -> list[Advice]:
    """All advice for a job on a machine (for any job where `wish` is not given), the gravest first."""
    wish = wish or Wish()
    found = [
        replace(advice, level=advice.level or known.level, code=known.code, source=known.source)
        for known in PIECES.values()
        for advice in known.judge(machine, wish)
    ]
    return sorted(found, key=lambda advice: ("error", "warning", "info").index(advice.level or "info"))


def advice_lines(machine: Machine) -> Iterator[str]:
    """The advice for any job on this machine as lines of text, the gravest first."""
    for advice in advise(machine):
        yield f"{MARKS[advice.level or 'info']} {advice.message}"
        if advice.fix and advice.level != "info":
            yield f"  → {advice.fix}"
