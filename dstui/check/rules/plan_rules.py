"""The rules that judge a Plan or a bare configuration alone. A new module is added here and nowhere else."""

from __future__ import annotations

from dstui.check.rule import rules_of
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
    plan_file,
    precision,
    prepared,
    queue,
    reader,
    releases,
    scheduler,
    schema,
    script,
    several,
    trainer,
    zenflow,
    zero,
)

# A module that is imported above and missing here is an unused import, which ruff reports.
MODULES = (
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
    plan_file,
    precision,
    prepared,
    queue,
    reader,
    releases,
    scheduler,
    schema,
    script,
    several,
    trainer,
    zenflow,
    zero,
)
RULES = rules_of(*MODULES)
