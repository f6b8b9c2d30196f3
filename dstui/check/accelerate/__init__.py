"""Rules for accelerate's own keys, in its YAML and in the `accelerate:` section of a Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dstui.check.accelerate import known_keys, values
from dstui.check.accelerate.book import DS
from dstui.check.context import Context
from dstui.check.rule import rules_of
from dstui.plan.accelerate_keys import FILE
from dstui.plan.catalogue import release
from dstui.plan.finding import Finding, sort_findings

if TYPE_CHECKING:
    from dstui.plan import Plan

__all__ = ["RULES", "check_accelerate", "check_section"]
RULES = rules_of(known_keys, values)
IN_A_PLAN = ("AC004", "AC007", "AC009", "AC010", "AC014", "AC024", "AC028", "AC041", "AC042")
"""The rules that also apply to a Plan's section. There dstui launches, and `deepspeed:` and `cluster:` define the rest."""


def check_accelerate(config: Mapping[str, Any], lines: Callable[[str], int | None] = lambda _path: None) -> list[Finding]:
    """Return the findings on an accelerate configuration, most severe first."""
    context = Context(config, release(), lines=lines)
    return sort_findings([finding for one in RULES.values() for finding in one.findings(context)])


def check_section(plan: Plan) -> list[Finding]:
    """Return the findings on the `accelerate:` section of a Plan."""
    if not plan.accelerate:
        return []
    zero = plan.deepspeed.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
    inner = plan.accelerate.get(DS)
    known = {FILE: "ds_config.json"} if stage == "auto" else {"zero_stage": stage}
    section = {**known, **inner} if isinstance(inner, Mapping) else inner if inner is not None else known
    config = {"distributed_type": "DEEPSPEED", **plan.accelerate, DS: section}
    context = Context(config, release(), root="accelerate.", lines=plan.line_of)
    return [finding for code in IN_A_PLAN for finding in RULES[code].findings(context)]
