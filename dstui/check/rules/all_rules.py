"""All rules: importing this registers them. A new module is named here and nowhere else."""

from __future__ import annotations

from dstui.check.rule import RULES
from dstui.check.rules import (
    auto,
    batch,
    checkpoint,
    cluster,
    compiling,
    experts,
    extras,
    job,
    legacy,
    offload,
    optimizer,
    parallel,
    precision,
    reader,
    removed,
    scheduler,
    schema,
    script,
    several,
    trainer,
    zenflow,
    zero,
)
from dstui.check.rules.machine import health, placement, variables

__all__ = [
    "RULES",
    "auto",
    "batch",
    "checkpoint",
    "cluster",
    "compiling",
    "experts",
    "extras",
    "health",
    "job",
    "legacy",
    "offload",
    "optimizer",
    "parallel",
    "placement",
    "precision",
    "reader",
    "removed",
    "scheduler",
    "schema",
    "script",
    "several",
    "trainer",
    "variables",
    "zenflow",
    "zero",
]
