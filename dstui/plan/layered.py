"""The origin of each value of a Plan with layers, and the same Plan as one text."""

from __future__ import annotations

from dataclasses import replace

from dstui.plan.finding import Finding
from dstui.plan.layer_edits import flattened
from dstui.plan.layers import Beneath, Origin, origin_beneath
from dstui.plan.load import PlanError
from dstui.plan.plan import Plan
from dstui.plan.splice import EditError

NOWHERE = object()


def origin_of(plan: Plan, path: str) -> Origin | None:
    """Return the origin of the value at a dotted path; None for a default, which nothing sets."""
    if any(path == key or path.startswith(f"{key}.") for key in plan.sets):
        return Origin("--set")
    parts = tuple(plan.parts(path))
    if plan.document.node(parts) is not None:
        return Origin("Plan", plan.source, plan.document.line_of(parts))
    return origin_beneath(plan.beneath, parts) if plan.beneath and plan.get(path, NOWHERE) is not NOWHERE else None


def without_layers(plan: Plan) -> Plan:
    """Return the same Plan as one text, as a job folder keeps it. Raises PlanError."""
    if not plan.beneath and "extends" not in plan.data:
        return plan
    values = {key: value for key, value in plan.data.items() if key != "extends"}
    try:
        document = flattened(plan.document, values)
    except EditError as error:
        raise PlanError([Finding("PLAN", "error", "", str(error), when="parse")], plan.source) from None
    return replace(plan, document=document, beneath=Beneath(locks=plan.beneath.locks, contact=plan.beneath.contact))
