"""Decide the verdict: separate causes from consequences. Pure.

Every hit has a role, and roles come before time: a consequence of another rank's death is never the cause; a symptom (a rank waits for
others) is the cause only if nothing better is known; and of real causes the first wins, with the others reported beside it. What follows a
stop is a consequence of the stop; a stop that follows a failure is a consequence of the failure. Nothing is guessed: if the text does not
show it, there is no cause and no rank.
"""

from __future__ import annotations

from collections.abc import Callable

from dstui.diagnosis.failure_context import FailureContext
from dstui.diagnosis.findings import Verdict
from dstui.diagnosis.rules.causes import cause
from dstui.diagnosis.rules.excerpts import excerpt, last_named
from dstui.diagnosis.rules.stops import asked, ended_by_signal, host_lost, stopped
from dstui.diagnosis.rules.successes import nothing_failed, quiet, well
from dstui.diagnosis.rules.waits import hint, left_early, link_broke, link_lost, other_collective, symptom, timed_out

RULES: tuple[Callable[[FailureContext], Verdict | None], ...] = (
    asked,
    host_lost,
    well,
    timed_out,
    cause,
    stopped,
    other_collective,
    symptom,
    ended_by_signal,
    link_broke,
    left_early,
    hint,
    quiet,
    nothing_failed,
    excerpt,
    last_named,
    link_lost,
)
"""The first match wins."""


def decide(context: FailureContext) -> Verdict:
    """Return the verdict on the findings: the result of the first rule that has one."""
    verdicts = (rule(context) for rule in RULES)
    return next((verdict for verdict in verdicts if verdict is not None), Verdict(None))
