"""What else it could be: other causes that the text speaks of, and those that leave the same words as the one that is told. Pure."""

from __future__ import annotations

from dstui.run.diagnosis.failure_context import FailureContext
from dstui.run.diagnosis.findings import Hit
from dstui.run.diagnosis.signatures import BY_ID
from dstui.run.diagnosis.subjects import likely, said
from dstui.run.diagnosis.verdict import Verdict

TOLD = 3
"""Causes that are told altogether, the first, those beside it and what it could also be: a list that is longer helps nobody."""
UNNAMED = frozenset({"USER-PY", "KILLED-UNKNOWN", "EARLY-EXIT", "SIGABRT"})
"""Causes that say no more than that something ended."""
CAN_BE_CAUSES = ("root", "symptom")


def candidates(context: FailureContext, verdict: Verdict) -> tuple[str, ...]:
    """Ids of the causes that it could be too, the likeliest first; none beside one that is sure.

    First those that the text has a word of, weaker or earlier than the one that is told; then those that leave the same words: the ones
    that its signature names, and for a known exception the plain one of the script. Of an exception that no signature knows they are those
    that its message, its functions and its library speak of. What the facts of the machine rule out is not told.
    """
    if verdict.confidence == "high":
        return ()
    mentioned = _mentioned(context, verdict)
    if verdict.signature is None:
        found = [*mentioned, *(one for hit in reversed(context.found.named) for one in said(hit.text))] if context.failed else []
    else:
        alike = sorted(_alike(verdict), key=lambda one: one not in mentioned)
        found = [*(one for one in alike if one in mentioned), *mentioned[:1], *alike]
    shown = {verdict.signature and _answer(verdict.signature.id), *verdict.others, *context.found.ruled_out}
    room = TOLD - bool(verdict.signature) - len(verdict.others)
    return tuple(one for one in dict.fromkeys(map(_answer, found)) if one not in shown)[: max(room, 0)]


def _mentioned(context: FailureContext, verdict: Verdict) -> list[str]:
    """Other causes that the text has a word of, those that say an end first, then the latest."""
    told = verdict.signature
    hits = [
        hit
        for hit in context.found.hits
        if hit.signature.role in CAN_BE_CAUSES
        and hit.signature.id not in UNNAMED
        and not (told and hit.signature.id in told.explains)
    ]
    hits.sort(key=_weight, reverse=True)
    return list(dict.fromkeys(_answer(hit.signature.id) for hit in hits))


def _weight(hit: Hit) -> tuple[bool, tuple[int, int]]:
    traced = hit.raised is not None and hit.raised.traced and not hit.raised.ignored
    return traced or hit.signature.alone, hit.at


def _alike(verdict: Verdict) -> list[str]:
    signature, first = verdict.signature, verdict.hits[0] if verdict.hits else None
    named = list(signature.alike) if signature else []
    if first is None or first.raised is None:
        return named
    by_words = likely(first.raised, first.text)
    if signature is BY_ID["USER-PY"]:
        return list(by_words)
    named.sort(key=lambda one: by_words.index(one) if one in by_words else len(by_words))
    if first.raised.traced:  # whatever a known cause's words are, the script's own mistake may have led to them
        named.insert(1, "USER-PY")
    return named


def _answer(one: str) -> str:
    return BY_ID[one].answer or one if one in BY_ID else one
