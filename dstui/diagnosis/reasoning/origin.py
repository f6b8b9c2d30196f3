"""Find where a failure began: the exception that ended a process, the rank that failed first, and whether every rank shows it. Pure.

Python also prints exceptions that were caught: above "During handling of the above exception", from logging, from threads. The last
uncaught exception ends a process. One that only rewords an earlier one (`raise … from …`, or an unknown exception after a known one) does
not replace the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

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
        expected = context.speaking_ranks if whole_host else context.ranks | set(range(max(ranks)))
        return len(named) <= 1 and ranks >= expected and (whole_host or len(ranks) >= context.processes)
    children = {hit.raised.child for hit in hits if hit.raised and hit.raised.child is not None}
    if len(children) > 1 and children == set(range(1, len(children) + 1)):
        return True
    unlabelled = [hit for hit in hits if hit.rank is None]
    texts = {hit.text for hit in unlabelled if hit.raised}
    beside = [hit for hit in context.found.named if hit.rank is None and any(_within(hit.text, text) for text in texts)]  # interleaved
    return 1 < context.processes <= count_showing(unlabelled) + len(beside) or (not ranks and _all_ended_alike(context, hits))


def _within(text: str, other: str) -> bool:
    """Return whether an exception's line is in another one, into which a second rank may have written."""
    name, _, message = text.partition(": ")
    return text == other or (bool(message) and other.startswith(name) and message in other)


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
    ended = {end.rank for end in context.failed_ends if end.exit.code == 1 and end.rank is not None}
    peers = any(hit.signature.role in ("cascade", "symptom") and hit.signature.id != "CHILD-FAILED" for hit in context.found.hits)
    return len(ended) >= max(context.processes, 2) and ended >= context.ranks and not peers and any(hit.raised for hit in hits)


def first_failing(context: FailureContext, hits: Sequence[Hit]) -> tuple[int | None, bool]:
    """Return the rank on which a cause began, and whether the text says so explicitly.

    A process id, a host, or the order of two unlabelled tracebacks does not identify a rank.
    """
    known = [hit for hit in hits if hit.rank is not None]
    if known:
        first = next((end.rank for end in context.failed_ends if end.root and end.stream == known[0].stream), None)
        return (first if any(hit.rank == first for hit in known) else known[0].rank), True
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
    if first := next((end for end in context.failed_ends if end.root or end.exit.reported), None):
        return first.rank
    ends = [end for end in context.failed_ends if not end.exit.whole]
    ranks = {_rank_of(context.found, end) for end in ends} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _rank_of(found: Findings, end: Ended) -> int | None:
    """Return the rank that an end belongs to."""
    if end.rank is not None or not end.exit.local or end.exit.rank is None:
        return end.rank
    first = first_of_host(found)
    return None if first is None else first + end.exit.rank


UNKNOWN = "USER-PY"
"""An exception that no other signature knows."""
MISTAKES = frozenset(
    {"NameError", "UnboundLocalError", "AttributeError", "TypeError", "KeyError", "IndexError", "ImportError", "ModuleNotFoundError"}
)
"""Types that are not raised to report something else: errors in the handling code, or in later code."""


MISSING = frozenset({"MODEL-FILES", "MODEL-FILE-PATH", "MODEL-FILES-PART", "DATA-FILE", "CKPT-NONE"})
"""Errors about a missing thing that another program should perhaps have created."""


def uncaught(context: FailureContext, hits: list[Hit]) -> list[Hit]:
    """Return the hits without exceptions that their process survived, and without those of threads if something else ended the run."""
    left = [hit for hit in hits if hit.raised and hit.raised.traced and hit.raised.clean and hit.signature.role == "root"]
    survived = [hit for hit in left if hit.raised and hit.raised.in_thread] if _has_others(context, left) else []
    if any(hit.raised and hit.raised.process is not None for hit in left):  # spawn reports which exception ended the run
        survived += [hit for hit in left if hit.rank is None and hit.signature.id == UNKNOWN and hit.raised and hit.raised.process is None]
    ended = [hit for hit in left if hit.raised and not (hit.raised.logged or hit.raised.in_thread or hit.raised.in_launcher)]
    survived += [hit for hit in left if hit.raised and hit.raised.logged and any(_may_have_ended(other, hit) for other in ended)]
    survived += _survived(context, left, survived, lambda hit: (hit.at[0], hit.stream, hit.raised and hit.raised.chain))
    survived += _survived(context, [hit for hit in left if _alone(context, hit)], survived, lambda hit: (hit.at[0], hit.stream, hit.rank))
    survived += _caught_before_a_stop(context, left)
    gone = {id(hit) for hit in survived}
    return [hit for hit in hits if id(hit) not in gone]


def _caught_before_a_stop(context: FailureContext, hits: list[Hit]) -> list[Hit]:
    """Return exceptions that a library raised and handled itself during a stop: the stop follows them in one traceback."""
    stops = {chain_of(hit) for hit in context.found.hits if hit.signature.role == "stop" and hit.raised and not hit.raised.ignored}
    return [hit for hit in hits if hit.signature.id == UNKNOWN and hit.raised and not hit.raised.in_user_code and chain_of(hit) in stops]


def chain_of(hit: Hit) -> Hashable:
    """Return the common key of exceptions that were raised while others of them were handled."""
    return hit.stream, hit.raised and hit.raised.chain


def _may_have_ended(hit: Hit, logged: Hit) -> bool:
    """Return whether this exception may have ended the process that had logged another one before."""
    return hit.at[0] == logged.at[0] and hit.at[1] > logged.at[1] and hit.rank == logged.rank


def _has_others(context: FailureContext, traced: list[Hit]) -> bool:
    """Return whether something other than a thread's exception ended the run."""
    stopped = any(hit.signature.role == "stop" for hit in context.found.hits)
    return stopped or any(hit.raised and not hit.raised.in_thread for hit in traced)


def _alone(context: FailureContext, hit: Hit) -> bool:
    """Return whether the text is certainly the output of one process."""
    if hit.raised is not None and hit.raised.child is not None:
        return False
    return hit.rank is not None or context.single or (context.found.world is None and not context.ranks)


def _survived(context: FailureContext, hits: list[Hit], gone: list[Hit], belongs: Callable[[Hit], Hashable]) -> list[Hit]:
    """Return the hits of each group except the one that ended it, others in its line, and repetitions of it."""
    known, groups = {id(hit) for hit in gone}, defaultdict[Hashable, list[Hit]](list)
    for hit in sorted(hits, key=lambda hit: hit.at):
        if id(hit) not in known:
            groups[belongs(hit)].append(hit)
    found: list[Hit] = []
    for group in groups.values():
        ended = _deciding(context, group)
        found += [hit for hit in group if hit.at != ended.at and (hit.signature is not ended.signature or ended.signature.id == UNKNOWN)]
    return found


def _misses_a_product(context: FailureContext, hit: Hit, hits: list[Hit]) -> bool:
    """Return whether a step of a job did not find a file after a launcher had ended an earlier step for another reason."""
    if hit.signature.id not in MISSING:
        return False
    before = [other.at for other in hits if other.at < hit.at and other.signature.id not in MISSING]
    return any(
        end.signature.id == "CHILD-FAILED" and end.raised is not None and end.raised.in_launcher and at < end.at < hit.at
        for end in context.found.hits
        for at in before
    )


def _deciding(context: FailureContext, hits: list[Hit]) -> Hit:
    """Return the decisive one of several exceptions in order of time, ignoring a step that only misses the result of an earlier one."""
    hits = [hit for hit in hits if not _misses_a_product(context, hit, hits)] or hits
    last = hits[-1]
    if explaining := [hit for hit in hits if last.signature.id in hit.signature.explains]:
        return explaining[-1]
    known = [hit for hit in hits if hit.signature.id != UNKNOWN]
    mistake = last.raised is not None and last.raised.name in MISTAKES and not last.raised.wraps
    return last if mistake or last in known or not known else known[-1]
