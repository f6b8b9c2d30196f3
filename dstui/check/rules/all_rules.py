"""All rules: those of `plan_rules`, and those that compare a Plan with a machine."""

from __future__ import annotations

from dstui.check.rule import rules_of
from dstui.check.rules import plan_rules
from dstui.check.rules.machine import machine_findings

RULES = rules_of(*plan_rules.MODULES, *machine_findings.MODULES)
