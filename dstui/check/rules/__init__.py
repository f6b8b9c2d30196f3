"""The rules, by topic: importing this package registers all of them. A new module is named here and nowhere else."""

from __future__ import annotations

from dstui.check.rule import RULES
from dstui.check.rules import auto, batch, form, job, offload, precision, reader, removed, zero

__all__ = ["RULES", "auto", "batch", "form", "job", "offload", "precision", "reader", "removed", "zero"]
