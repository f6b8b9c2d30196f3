"""The Plan: the YAML document that the TUI edits and headless runs. All else is a pure function of it."""

from dstui.plan.load import PlanError
from dstui.plan.plan import Plan, load

__all__ = ["Plan", "PlanError", "load"]
