"""A Plan with layers: the origin of each value, the same Plan as one text, and what the locks of the site refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dstui.plan.finding import Finding
from dstui.plan.layer_edits import flattened
from dstui.plan.layers import Beneath, Lock, Origin, origin_beneath, spell
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


AUTO = "auto"


def broken_locks(plan: Plan, locks: Iterable[Lock] | None = None) -> list[tuple[Lock, Any]]:
    """Return the locks of the site that a Plan breaks, each with the refused value. `locks`: the locks to compare, by default all."""
    found = []
    for lock in plan.beneath.locks if locks is None else locks:
        value = _value(plan, lock.path)
        if not lock.allows(value) and all(_value(plan, path) == wanted for path, wanted in lock.when.items()):
            found.append((lock, value))
    return found


def describe_broken(plan: Plan, lock: Lock, value: Any) -> str:
    """Return the message about a refused value, with the reason of the site."""
    where = f", from {origin}" if (origin := origin_of(plan, lock.path)) is not None and origin.layer != "Plan" else ""
    when = "".join(f" where {path} is {spell(wanted)}" for path, wanted in lock.when.items())
    is_given = "it is not set" if value is None else f"{spell(value)}{where}"
    reason = f": {lock.reason}" if lock.reason else ""
    instead = f". {_instead_of_auto(lock)}" if value == AUTO else ""
    return f"{is_given}, but this site allows {lock.allowed}{when}{reason}{instead}"


def _instead_of_auto(lock: Lock) -> str:
    """Return what to write instead of "auto", which the script fills in from its own arguments, after any check."""
    written = spell(lock.exact[0]) if lock.exact else "one of them"
    return f'"auto" is filled in by the script, where nobody can check it: write {written} here, and give the script the same'


def _value(plan: Plan, path: str) -> Any:
    """Return the Plan's value of a key. The number of nodes is also known if only hosts are named."""
    value = plan.get(path)
    if path == "cluster.num_nodes" and value is None and plan.cluster.hosts is not None:
        return len(plan.cluster.hosts)
    return value


def refusal(plan: Plan) -> str:
    """Return why a Plan may not be launched here, or ""."""
    return _refusal(plan, broken_locks(plan), plan.beneath.contact)


def refusal_of_command(plan: Plan, site: Beneath) -> str:
    """Return why a command, of which a Plan was made, may not be launched here, or "".

    The command runs unchanged, without the site's values. A lock applies only if the command sets its key. For a key of DeepSpeed it also
    applies if the configuration that the command names leaves the key out.
    """
    judged = [lock for lock in site.locks if plan.get(lock.path) is not None or (plan.deepspeed and lock.path.startswith("deepspeed."))]
    return _refusal(plan, broken_locks(plan, judged), site.contact)


def _refusal(plan: Plan, broken: Sequence[tuple[Lock, Any]], contact: str) -> str:
    if not broken:
        return ""
    lines = [f"  {lock.path}: {describe_broken(plan, lock, value)} ({lock.source}:{lock.line})" for lock, value in broken]
    ask = f"\nAsk {contact}" if contact else ""
    return "The site does not allow this Plan:\n" + "\n".join(lines) + ask


def lock_of(plan: Plan, path: str) -> Lock | None:
    """Return the lock that allows only one value for a key, whatever else the Plan sets, or None."""
    return next((lock for lock in plan.beneath.locks if lock.path == path and lock.is_fixed), None)
