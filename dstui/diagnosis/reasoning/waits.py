"""Rules for ranks that waited without a known reason: which rank was missing or had left, and what a hanging run waited for."""

from __future__ import annotations

import re
from collections import Counter

from dstui.diagnosis.findings import Hit, Verdict
from dstui.diagnosis.reasoning.causes import independent, roots
from dstui.diagnosis.reasoning.failure_context import FailureContext
from dstui.diagnosis.recognition.exits import TIMED_OUT
from dstui.diagnosis.signatures import BY_ID

WAITED = frozenset({"GLOO-PEER", "NCCL-REMOTE", "GLOO-TIMEOUT", "NCCL-WATCHDOG", "RDZV-CASCADE"})
"""Reports of ranks whose peers are gone or do not arrive."""
LINKS = {"NCCL-REMOTE": "NCCL-SYSTEM", "RDZV-CASCADE": "RDZV-TIMEOUT"}
"""Report of a rank about a broken link to a peer -> the cause if no peer's death explains it."""
RENDEZVOUS = re.compile(r"Rendezvous\w*Error")
"""Messages of the rendezvous itself, among those that may only be a peer's end."""
WAITING_FOR = ("JIT-LOCK", "INIT-HANG-P2P")
"""Hints about what a hanging run waited for."""


def timed_out(context: FailureContext) -> Verdict | None:
    """Decide for a hang if timeout(1) had to end the run and no error was reported before."""
    late = [end for end in context.failed_ends if end.exit.code == TIMED_OUT]
    if not late or roots(context):
        return None
    hints = [hit for one in WAITING_FOR for hit in context.found.hits if hit.signature.id == one and hit.at > context.found.loaded]
    if hints:
        return Verdict(hints[0].signature, "medium", hints)
    rank, _ = context.suspect()
    hits = [Hit(BY_ID["HANG"], end.at, end.text, end.stream) for end in late]
    return Verdict(BY_ID["HANG"], "medium", hits, rank if rank is not None else context.last_rank_named())


def other_collective(context: FailureContext) -> Verdict | None:
    """Decide for a desync if stacks show ranks in different collectives; the rank that is alone is to blame."""
    waits = context.found.waits
    where = Counter(function for function, _ in waits.values())
    if len(where) < 2:
        return None
    odd = [hit for function, hit in waits.values() if where[function] == 1]
    alone = len(odd) == 1 and len(waits) > 2
    hits = [*odd, *(hit for _, hit in waits.values() if hit not in odd)]
    return Verdict(BY_ID["HANG-DESYNC"], "medium", hits, odd[0].rank if alone else None)


def symptom(context: FailureContext) -> Verdict | None:
    """Decide for what ranks waited in, if no reason is known."""
    hits = [hit for hit in independent(roots(context)) if hit.signature.role == "symptom"]
    return _peers_had_left(context, hits) or (_what_they_waited_in(context, hits) if hits else None)


def _peers_had_left(context: FailureContext, symptoms: list[Hit]) -> Verdict | None:
    """Decide that a rank left early, if others waited for ranks that had exited with 0 or without a message: these did fewer steps."""
    waited = [hit for hit in context.found.hits if hit.signature.id in WAITED and not (hit.raised and hit.raised.ignored)]
    if not waited or context.ended_well:
        return None
    # torchrun does not report who exited with 0, but it reports which ranks it had to end. If it names none, the silent ones had left.
    gone = context.found.well or set(context.silent() if _none_survived(context) and not symptoms else ())
    if not gone:
        return None
    return Verdict(BY_ID["DESYNC-EARLY-EXIT"], "medium", waited, min(gone) if min(gone) >= 0 else None)


def _what_they_waited_in(context: FailureContext, hits: list[Hit]) -> Verdict:
    """Return the first symptom itself. The rank is the first of those that are behind, else the one that reported it first."""
    first = min(hits, key=context.order)
    late = context.behind()
    # the watchdog ends the reporting ranks, and the silent one may still be running
    silent = len(late) == 1 and first.signature.id != "NCCL-WATCHDOG"
    differ = len(set(context.found.enqueued.values())) > 1
    known = late and (differ or silent) and len(late) < max(len(context.ranks), 2)
    rank = late[0] if known else first.rank
    signature = first.signature
    if signature.id == "NCCL-WATCHDOG" and context.found.preparing:
        return Verdict(BY_ID["TOKENISE-TIMEOUT"], "medium", hits, rank)
    if signature.id == "GLOO-TIMEOUT" and not late:
        signature = BY_ID["HANG-DESYNC"]
    return Verdict(signature, "medium", [hit for hit in hits if hit.signature is first.signature], rank)


def _none_survived(context: FailureContext) -> bool:
    """Return whether torchrun reported failures and had no rank to end."""
    return bool(context.found.agents and context.failed_ends) and not context.found.closing


def link_broke(context: FailureContext) -> Verdict | None:
    """Decide for a broken link if a rank lost it and torchrun had to end all others: they were alive, so no death broke it."""
    lost = _lost(context)
    alive = context.found.closing and context.found.closing + len({hit.rank for hit in lost} - {None}) >= len(context.ranks)
    return _link_verdict(lost) if lost and alive and not context.found.several_nodes else None


def link_lost(context: FailureContext) -> Verdict | None:
    """Decide for a lost link if nothing else is known and no silent rank can have been the peer."""
    lost = _lost(context)
    return _link_verdict(lost) if lost and not context.silent() and not context.ended_well else None


def _lost(context: FailureContext) -> list[Hit]:
    """Return exceptions about a broken link to a peer, in order of time."""
    hits = [hit for hit in context.found.hits if hit.signature.id in LINKS and hit.raised and hit.raised.traced and not hit.raised.ignored]
    return sorted((hit for hit in hits if hit.signature.id == "NCCL-REMOTE" or RENDEZVOUS.search(hit.text)), key=context.order)


def _link_verdict(lost: list[Hit]) -> Verdict:
    return Verdict(BY_ID[LINKS[lost[0].signature.id]], "low", lost, lost[0].rank)


def left_early(context: FailureContext) -> Verdict | None:
    """Decide for a rank that exited by itself with a status and without a message (sys.exit, os._exit, a C++ library's exit).

    The rank is the first one without a message about a failure. If every rank has one, or the ends have no ranks, decide for an exit status
    of the program's own, not one of an interpreter or a shell (1: an exception; 2: a parser; 126, 127: not started; 255: exit(-1)).
    Otherwise ranks that waited for a peer are enough, if only one rank can have been that peer.
    """
    own = [end for end in context.failed_ends if 0 < end.exit.code < 256]  # larger: the way in which Windows reports a crash
    # An exit status of 1 is an exception's, one of 2 a parser's or a shell's: without a message in the text it is a rank's own end only if
    # others report theirs.
    others = context.found.ended or context.found.spoke
    wordless = [
        end for end in own if end.rank is not None and end.rank not in context.found.spoke and (end.exit.code not in (1, 2) or others)
    ]
    numbered = [end for end in own if end.exit.code not in (1, 2, 126, 127, 255)]
    waited = [hit for hit in context.found.hits if hit.signature.id in WAITED]
    wordless.sort(key=lambda end: context.found.ended.get(end.rank or 0, 0.0))
    rank, certain = (wordless[0].rank, True) if wordless else context.suspect()
    if not (wordless or numbered or (waited and own and rank is not None)):
        return None
    hits = [Hit(BY_ID["EARLY-EXIT"], end.at, end.text, end.stream, end.rank, end.host) for end in wordless or numbered]
    return Verdict(BY_ID["EARLY-EXIT"], "medium" if hits and certain else "low", hits or waited, rank)


def hint(context: FailureContext) -> Verdict | None:
    """Decide for a build that never ended, if the log ends within it."""
    if context.failed:
        return None
    hits = [hit for hit in context.found.hits if hit.signature.id == "JIT-LOCK" and hit.at > context.found.loaded]
    last = [line for lines in context.found.tails.values() for line in lines[-2:]]
    if hits and any(hit.text.strip() in line for hit in hits for line in last):
        return Verdict(BY_ID["JIT-LOCK"], "low", hits)
    return None
