"""Rules from the site: its locks, and site files that could not be used."""

from __future__ import annotations

from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan import Plan
from dstui.plan.finding import Fix
from dstui.plan.layer_edits import own_operations
from dstui.plan.layers import Lock, spell
from dstui.plan.locks import broken_locks, describe_broken


@rule("PL080", "error", when="launch", source="the site file (docs/site.md)")
def locked(c: Context) -> Problems:
    """A value that the site does not allow."""
    if c.plan is None:
        return
    for lock, value in broken_locks(c.plan):
        ask = f"; ask {c.plan.beneath.contact}" if c.plan.beneath.contact else ""
        why = f"locked in {lock.source}:{lock.line}"
        yield about_the_plan(lock.path, f"{describe_broken(c.plan, lock, value)}{ask}", why, _fix(c.plan, lock))


def _fix(plan: Plan, lock: Lock) -> Fix | None:
    """Return a fix that sets the only allowed value."""
    if not lock.exact or lock.path in plan.sets:
        return None
    path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in lock.path.split("."))
    patch = own_operations(plan.document, plan.data, ({"op": "add", "path": path, "value": lock.exact[0]},))
    return Fix(f"set {lock.path} to {spell(lock.exact[0])}", patch)


@rule("PL082", "warning", source="the site file (docs/site.md)")
def unused_layer(c: Context) -> Problems:
    """A site file or settings file that cannot be used, so that its values and locks do not apply."""
    if c.plan is not None:
        for problem in c.plan.beneath.problems:
            yield about_the_plan("", problem)
