"""Rules for excerpts: pasted text is often only the error, without a traceback's head, a launcher's line or the end of a process. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from dstui.diagnosis.culprits import first_failing
from dstui.diagnosis.failure_context import FailureContext
from dstui.diagnosis.findings import Hit, Verdict
from dstui.diagnosis.labels import HANDLED, WARNED
from dstui.diagnosis.rules.causes import independent
from dstui.diagnosis.signatures import BY_ID

OF_A_LAUNCHER = re.compile(r"^Error: |(?i:process|rank|task|worker|command|child)\w*\b.{0,80}(?:exit|non-?zero|fail|died|terminated)")
"""Messages that a process ended, without the reason."""
GOES_ON = frozenset({"TOOL-GONE", "FILE-GONE", "ENV-GONE", "SCRIPT-PERM"})
"""Errors after which a shell script continues, unless they are the last ones of the text."""


def excerpt(context: FailureContext) -> Verdict | None:
    """Return the error of a text with nothing else: one of few lines, or one at the end. That it ended the run is only likely."""
    if context.failed or context.ended_well:
        return None
    hits = [hit for hit in context.found.hits if hit.signature.role in ("root", "symptom") and _may_be_the_end(context, hit)]
    if hits := sorted(independent(hits), key=context.order):
        first = hits[0].signature
        same = [hit for hit in hits if hit.signature is first]
        others = dict.fromkeys(hit.signature.answer or hit.signature.id for hit in hits if hit.signature is not first)
        return Verdict(first, "medium" if first.sure and not others else "low", same, same[0].rank, list(others))
    return _last_named([hit for hit in context.found.named if _may_be_the_end(context, hit)])


def last_named(context: FailureContext) -> Verdict | None:
    """Return the last exception in a line without a traceback, if the run failed and nothing better is known."""
    if not context.failed or context.ended_well:
        return None
    harmless = (HANDLED, WARNED, OF_A_LAUNCHER)
    verdict = _last_named([hit for hit in context.found.named if not any(words.search(hit.text) for words in harmless)])
    if verdict is None or verdict.rank is not None:
        return verdict
    return replace(verdict, rank=first_failing(context, verdict.hits)[0])


def _last_named(hits: list[Hit]) -> Verdict | None:
    return Verdict(BY_ID["USER-PY"], "low", hits[-1:], hits[-1].rank) if hits else None


def _may_be_the_end(context: FailureContext, hit: Hit) -> bool:
    """Return whether almost nothing is beside or after it, and it is not reported as handled."""
    if HANDLED.search(hit.text) or WARNED.search(hit.text) or (hit.raised and hit.raised.ignored):
        return False
    if hit.signature.id in GOES_ON and not context.in_last_lines(hit):
        return False
    return context.may_be_the_end(hit)
