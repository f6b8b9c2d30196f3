"""Known regressions of the installed release of DeepSpeed (the table is `dstui.check.regressions`)."""

from __future__ import annotations

from dstui.check.context import Context
from dstui.check.regressions import REGRESSIONS
from dstui.check.rule import Problems, rule
from dstui.plan.catalogue import version_tuple
from dstui.plan.finding import Fix


@rule("KR001", "warning", source="dstui/check/regressions.py")
def known_regression(c: Context) -> Problems:
    """The installed release of DeepSpeed has a known defect that affects this Plan."""
    if c.installed is None:
        return
    for known in REGRESSIONS:
        if version_tuple(known.since) <= version_tuple(c.installed) < version_tuple(known.fixed) and known.applies(c):
            message = f"DeepSpeed {c.installed}: {known.symptom}"
            fix = Fix(f"install deepspeed>={known.fixed}" + (f", or {known.instead}" if known.instead else ""))
            yield c.problem(known.path, message, why=f"{known.link}; fixed in {known.fixed}", fix=fix)
