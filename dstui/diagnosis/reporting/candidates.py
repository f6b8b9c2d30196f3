"""Find other possible causes: those that the text mentions, and those with the same text as the reported one. Pure."""

from __future__ import annotations

import re

from dstui.diagnosis.findings import Hit, Verdict
from dstui.diagnosis.reasoning.failure_context import FailureContext
from dstui.diagnosis.recognition.exits import exits_in
from dstui.diagnosis.recognition.labels import HANDLED
from dstui.diagnosis.recognition.subjects import ENOUGH, likely_causes, subjects_of
from dstui.diagnosis.signatures import BY_ID

MAX_CAUSES = 3
"""Causes that are reported in total: the first, further ones, and possible ones. A longer list helps nobody."""
UNNAMED = frozenset({"USER-PY", "KILLED-UNKNOWN", "EARLY-EXIT", "SIGABRT"})
"""Causes that only say that something ended."""
ZERO_PREFIX = "Z3-"
"""The ids of causes that only DeepSpeed can have begin so."""
INTERRUPT = re.compile(r"KeyboardInterrupt|^(?:\^C)+$|^\W*[Ii]nterrupt(?:ed)?\b")
"""Python's word for Ctrl-C, the terminal's, and that of a script's own handler."""
NOT_BY_KEY = frozenset({"SLURM-CANCEL", "SIGHUP"})
"""Ends by a signal that is not SIGINT."""
CAN_BE_CAUSES = ("root", "symptom")
WARNING = re.compile(r"(?i)\bwarn(?:ing)?\b")
ERROR = re.compile(
    r"(?i)\b(?:\w*error|fail(?:ed|ure|s)?|fatal|cannot|can't|could not|unable to|denied|refused|not found|no such|invalid"
    r"|abort(?:ed|ing)?)\b"
)
LAST, LAST_OF_ALL = 6, 2
"""Lines at the end that may contain an unknown error message; fewer if nothing else shows a failure."""
STATUS_CAUSES: dict[int, tuple[str, ...]] = {
    1: ("USER-PY",),
    2: ("USER-PY", "NO-SCRIPT"),
    126: ("CKPT-PERM", "NO-DS-CMD"),
    127: ("NO-DS-CMD", "NO-SCRIPT"),
}
"""Exit statuses of interpreters and shells -> their possible causes."""


def candidates(context: FailureContext, verdict: Verdict, planned: bool = False) -> tuple[str, ...]:
    """Return ids of other possible causes, the likeliest first; none beside a sure one.

    First those that the text mentions, less clearly or earlier than the reported one; then those with the same text: the ones that its
    signature names, and for a known exception the plain one of the script. For an exception that no signature knows, they are those that
    its message, its functions and its library suggest. Causes that the facts about the machine rule out are omitted, and those of ZeRO
    if neither a Plan (`planned`) nor the text speaks of DeepSpeed.
    """
    if verdict.confidence == "high":
        return ()
    reported = (*(_answer(one.id) for one in (verdict.signature,) if one), *verdict.others)
    strong, weak = _mentioned(context, verdict)
    if verdict.signature is None:
        found = [*strong, *weak, *_spoken_of(context)] if context.failed else _last_words(context, LAST_OF_ALL)
    else:
        alike = _alike(verdict)
        found = [*(one for one in alike if one in {*strong, *weak}), *strong[:1], *alike, *weak]
    excluded = {*reported, *context.found.ruled_out, *(NOT_BY_KEY if by_a_key(verdict) else ())}
    zero = planned or context.found.deepspeed
    left = [one for one in dict.fromkeys(found) if one not in excluded and (zero or not one.startswith(ZERO_PREFIX))]
    if _known_exception(verdict) and "USER-PY" not in reported:  # the script's own error may have led to any known exception
        left.insert(1, "USER-PY")
    return tuple(dict.fromkeys(left))[: max(MAX_CAUSES - len(reported), 0)]


def by_a_key(verdict: Verdict) -> bool:
    """Return whether a stop was an interrupt from the keyboard, or from a notebook's button."""
    return verdict.signature is BY_ID["CTRL-C"] and bool(verdict.hits) and INTERRUPT.search(verdict.hits[0].text) is not None


def _mentioned(context: FailureContext, verdict: Verdict) -> tuple[list[str], list[str]]:
    """Return other causes that the text mentions, latest first: those that report an end, and mere mentions."""
    signature = verdict.signature
    explained = (signature.id, *signature.explains) if signature else ()
    found: tuple[list[str], list[str]] = [], []
    for hit in sorted(context.found.hits, key=lambda hit: hit.at, reverse=True):
        counts = hit.signature.role in CAN_BE_CAUSES and hit.signature.id not in (*UNNAMED, *explained)
        if counts and not WARNING.search(hit.text):
            found[not _is_more_than_a_mention(hit)].append(_answer(hit.signature.id))
    return found


def _is_more_than_a_mention(hit: Hit) -> bool:
    dealt_with = (hit.raised is not None and hit.raised.ignored) or HANDLED.search(hit.text)
    return not dealt_with and (hit.signature.alone or (hit.raised is not None and hit.raised.traced))


def _spoken_of(context: FailureContext) -> list[str]:
    """Return causes suggested by the last lines with error messages, by the consequences, and by the exit status."""
    fallen = [one for hit in context.found.hits if hit.signature.role == "cascade" for one in hit.signature.alike]
    ended = [one for end in context.failed_ends for one in STATUS_CAUSES.get(end.exit.code, ())]
    return [*_last_words(context, LAST), *fallen, *ended]


def _last_words(context: FailureContext, count: int) -> list[str]:
    """Return causes suggested by the last lines that look like errors, last line first."""
    last = [line for lines in context.found.tails.values() for line in lines[-count:] if ERROR.search(line) and not exits_in(line)]
    return [one for line in reversed(last) for one in subjects_of(line)]


def _alike(verdict: Verdict) -> list[str]:
    """Return causes with the same text; those that the text also suggests come first."""
    signature, first = verdict.signature, verdict.hits[0] if verdict.hits else None
    named = list(signature.alike) if signature else []
    by_words = likely_causes(first.raised, first.text) if first is not None and first.raised is not None else ()
    if signature is BY_ID["USER-PY"] and first is not None and first.raised is not None:
        named = list(likely_causes(first.raised, first.text, ENOUGH))
    named.sort(key=lambda one: by_words.index(one) if one in by_words else len(by_words))
    if first is not None and first.signature.role == "cascade":  # its possible causes
        named = [*first.signature.alike, *named]
    return list(map(_answer, named))


def _known_exception(verdict: Verdict) -> bool:
    raised = verdict.hits[0].raised if verdict.hits and verdict.hits[0].signature.role != "cascade" else None
    return verdict.signature is not BY_ID["USER-PY"] and raised is not None and raised.traced


def _answer(one: str) -> str:
    return BY_ID[one].answer or one
