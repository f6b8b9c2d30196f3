"""The page of a rule: what it is about, when a run would die of it, and what decides it."""

from __future__ import annotations

from dstui.check.accelerate import RULES as ACCELERATE_RULES
from dstui.check.rule import quote_excerpt
from dstui.check.rules.all_rules import RULES
from dstui.check.rules.releases import AS_OF, REGRESSIONS
from dstui.plan.finding import describe_moment


def rule_page(code: str) -> str:
    """Return the page of the rule with this code, "" where there is none."""
    rule = RULES.get(code) or ACCELERATE_RULES.get(code)
    if rule is None:
        return ""
    lines = [f"{rule.code}  ({rule.severity})", f"  {rule.title}"]
    if rule.when:
        reader = "accelerate" if "accelerate" in rule.readers or code in ACCELERATE_RULES else rule.readers[0] if rule.readers else ""
        lines.append(f"  when     {describe_moment(rule.when, reader)}")
    if rule.says:
        lines.append(f"  says     {quote_excerpt(rule.says)}")
    if rule.readers:
        lines.append(f"  about    configurations that {', '.join(rule.readers)} reads")
    if rule.source:
        lines.append(f"  source   {rule.source}")
    if code == "KR001":
        lines.append(f"  known    as of {AS_OF}")
        lines += [f"    {one.since} up to {one.fixed}: {one.symptom}\n      {one.link}" for one in REGRESSIONS]
    return "\n".join(lines)
