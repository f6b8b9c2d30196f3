"""The Plan: one YAML document that the TUI edits, headless runs, and everything else is a pure function of."""

from dstui.plan.load import PlanError
from dstui.plan.plan import Plan, load

__all__ = ["Plan", "PlanError", "load"]
