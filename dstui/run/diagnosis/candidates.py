"""What else it could be: causes that leave the same words as the one that is told, and how to tell them apart. Pure."""

from __future__ import annotations

from dstui.run.diagnosis.exceptions import alike_of
from dstui.run.diagnosis.failure_context import FailureContext
from dstui.run.diagnosis.signatures import BY_ID
from dstui.run.diagnosis.verdict import Verdict

MOST = 3
"""Candidates that are told: a list that is longer helps nobody."""
UNNAMED = frozenset({"USER-PY", "KILLED-UNKNOWN", "EARLY-EXIT", "SIGABRT"})
"""Causes that say no more than that something ended."""


def candidates(context: FailureContext, verdict: Verdict) -> tuple[str, ...]:
    """Ids of the causes that it could be too, the likeliest first; none beside one that is sure.

    They are those that the signature names as alike, and of a known exception the plain one of the script; of an exception that no
    signature knows, those that such exceptions come from. The ones that the text has a word of come first. What the facts of the machine
    rule out is not told.
    """
    if verdict.confidence == "high":
        return ()
    mentioned = [hit.signature.answer or hit.signature.id for hit in context.found.hits if hit.signature.role == "root"]
    if verdict.signature is None:
        found = [one for one in mentioned if one not in UNNAMED] if context.failed else []
    else:
        found = sorted(_alike(verdict), key=lambda one: one not in mentioned)
    shown = {verdict.signature and (verdict.signature.answer or verdict.signature.id), *verdict.others, *context.found.ruled_out}
    return tuple(one for one in dict.fromkeys(found) if one not in shown)[:MOST]


def _alike(verdict: Verdict) -> list[str]:
    signature, first = verdict.signature, verdict.hits[0] if verdict.hits else None
    named = list(signature.alike) if signature else []
    if first is not None and first.raised is not None:
        if signature is BY_ID["USER-PY"]:
            named = list(alike_of(first.raised, first.text))
        elif first.raised.traced:  # whatever a known cause's words are, the script's own mistake may have led to them
            named.insert(1, "USER-PY")
    return [BY_ID[one].answer or one for one in named]
