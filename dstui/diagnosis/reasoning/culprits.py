"""Find the rank on which a cause began, and whether every rank shows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dstui.diagnosis.findings import Ended, Findings, Hit
from dstui.diagnosis.reasoning.failure_context import FailureContext
from dstui.diagnosis.reasoning.rank_resolution import count_showing, first_of_host

A_HOST = 4
"""Consecutive ranks in a log: one host's log of several contains no others."""


def every_rank(context: FailureContext, hits: Sequence[Hit]) -> bool:
    """Return whether all ranks show the cause: by their labels, or by as many unlabelled tracebacks as there are ranks."""
    ranks = {hit.rank for hit in hits if hit.rank is not None and hit.signature.role in ("root", "symptom")}
    if len(set(context.found.enqueued.values())) > 1:
        return False  # one rank is behind the others
    if len(ranks) > 1:
        whole_host = len(ranks) >= A_HOST and max(ranks) - min(ranks) + 1 == len(ranks)
        named = {hit.raised.name for hit in hits if hit.raised and hit.signature.id == "USER-PY"}
        expected = context.heard if whole_host else context.ranks | set(range(max(ranks)))
        return len(named) <= 1 and ranks >= expected and (whole_host or len(ranks) >= context.processes)
    children = {hit.raised.child for hit in hits if hit.raised and hit.raised.child is not None}
    if len(children) > 1 and children == set(range(1, len(children) + 1)):
        return True
    unlabelled = [hit for hit in hits if hit.rank is None]
    texts = {hit.text for hit in unlabelled if hit.raised}
    beside = [hit for hit in context.found.named if hit.rank is None and hit.text in texts]  # tracebacks that are interleaved
    return 1 < context.processes <= count_showing(unlabelled) + len(beside) or (not ranks and _all_ended_alike(context, hits))


def _all_ended_alike(context: FailureContext, hits: Sequence[Hit]) -> bool:
    """Return whether torchrun's table and the exceptions say that all ranks failed in the same way.

    The table has every rank as ended by itself with an exception's status, several exceptions were printed, and no rank reports a lost
    peer.
    """
    of_launchers = sum(
        hit.signature.id == "CHILD-FAILED" and hit.raised is not None and hit.raised.in_launcher for hit in context.found.hits
    )
    if context.found.tracebacks - of_launchers < 2:
        return False
    ended = {end.rank for end in context.bad_ends if end.exit.code == 1 and end.rank is not None}
    peers = any(hit.signature.role in ("cascade", "symptom") and hit.signature.id != "CHILD-FAILED" for hit in context.found.hits)
    return len(ended) >= max(context.processes, 2) and ended >= context.ranks and not peers and any(hit.raised for hit in hits)


def first_failing(context: FailureContext, hits: Sequence[Hit]) -> tuple[int | None, bool]:
    """Return the rank on which a cause began, and whether the text says so explicitly.

    A process id, a host, or the order of two unlabelled tracebacks does not identify a rank.
    """
    known = [hit for hit in hits if hit.rank is not None]
    if known:
        return known[0].rank, True
    if context.single:
        return 0, True
    mentioned = {hit.rank for hit in context.found.hits if hit.rank is not None and hit.signature is hits[0].signature}
    if len(mentioned) == 1:
        return mentioned.pop(), True  # the program's own statement, beside an unlabelled traceback
    if any(hit.raised for hit in hits):
        return named_by_launcher(context), True
    rank, certain = context.suspect()
    return (rank, certain) if rank is not None else (named_by_launcher(context), certain)


def named_by_launcher(context: FailureContext) -> int | None:
    """Return the rank that ended first by itself according to its launcher. A last resort, since it is not always the first that failed."""
    if first := next((end for end in context.bad_ends if end.root or end.exit.reported), None):
        return first.rank
    ends = [end for end in context.bad_ends if not end.exit.whole]
    ranks = {_rank_of(context.found, end) for end in ends} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _rank_of(found: Findings, end: Ended) -> int | None:
    """Return the rank that an end belongs to."""
    if end.rank is not None or not end.exit.local or end.exit.rank is None:
        return end.rank
    first = first_of_host(found)
    return None if first is None else first + end.exit.rank
