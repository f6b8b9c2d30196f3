"""Import all rules, which registers them: those of `plan_rules`, and those that compare a Plan with a machine or a cluster."""

from __future__ import annotations

from dstui.check.rule import RULES
from dstui.check.rules import plan_rules, queue
from dstui.check.rules.machine import health, packages, placement, variables

__all__ = ["RULES", "health", "packages", "placement", "plan_rules", "queue", "variables"]
