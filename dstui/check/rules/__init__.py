"""The rules, by topic: importing this package registers all of them. A new module is named here and nowhere else."""

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
    machine,
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

__all__ = [
    "RULES",
    "auto",
    "batch",
    "checkpoint",
    "cluster",
    "compiling",
    "experts",
    "extras",
    "job",
    "legacy",
    "machine",
    "offload",
    "optimizer",
    "parallel",
    "schema",
]
__all__ += ["precision", "reader", "removed", "scheduler", "script", "several", "trainer", "zenflow", "zero"]
