"""Rules for ends on purpose: requested stops, and the messages that show them."""

from __future__ import annotations

from dstui.diagnosis.exits import SIGNAL_CAUSES
from dstui.diagnosis.failure_context import NEVER, FailureContext
from dstui.diagnosis.findings import Hit, Verdict
from dstui.diagnosis.signatures import BY_ID

STOPS = ("SLURM-TIME", "SLURM-PREEMPT", "SLURM-CANCEL", "SIGHUP", "CTRL-C")
"""The first one found explains the others: SLURM's time limit sends the SIGTERM."""


def asked(context: FailureContext) -> Verdict | None:
    """Decide for a stop if the end of the job was requested and no rank had failed before."""
    stop = context.found.stop
    if stop is None:
        return None
    earlier = [end for end in context.bad_ends if stop.at is not None and context.found.ended.get(end.rank or 0, NEVER) < stop.at]
    if earlier:
        return None
    context.found.files.append(stop.file)
    return Verdict(BY_ID[stop.cause], "high", [Hit(BY_ID[stop.cause], (len(context.found.files) - 1, stop.line), stop.text, "")])


def host_lost(context: FailureContext) -> Verdict | None:
    """Decide for lost hosts if the supervisor ended the job because hosts were unreachable for too long."""
    hits = context.found.lost_hosts
    return Verdict(BY_ID["HOST-LOST"], "high", hits, hits[0].rank) if hits else None


def stopped(context: FailureContext) -> Verdict | None:
    stops = [hit for hit in context.found.hits if hit.signature.role == "stop" and not _followed(context, hit)]
    for one in STOPS:
        if hits := [hit for hit in stops if hit.signature.id == one]:
            failed = any(hit.signature.role == "root" and hit.raised and hit.raised.traced for hit in context.found.hits)
            return Verdict(BY_ID[one], "medium" if failed or context.end_in_doubt else "high", hits)
    return None


def _followed(context: FailureContext, stop: Hit) -> bool:
    """Return whether the scheduler only cancelled what had failed by itself: after a task's failure or a rank's timeout message."""
    if stop.signature.id != "SLURM-CANCEL":
        return False
    before = [end for end in context.bad_ends if end.at[0] == stop.at[0] and end.at < stop.at]
    return any(end.exit.task is not None for end in before) or bool(context.timed_out_before(stop))


def ended_by_signal(context: FailureContext) -> Verdict | None:
    """Decide for a stop if the launcher, or every rank, ended by a signal that requests it, without a further message."""
    asked = [end for end in context.found.ends if end.exit.code in (-1, -2, -15)]
    if any(end.exit.code not in (-1, -2) for end in context.bad_ends):
        asked = [end for end in asked if end.exit.local]  # torchrun's local rank of the process that ended by itself
    heard = [hit for hit in context.found.hits if hit.signature.id == "SIGTERM-HEARD"]
    if heard and not asked and not context.failed:
        return Verdict(BY_ID["CTRL-C"], "medium", heard)
    if not asked:
        return None
    end = asked[0]
    signature = BY_ID[SIGNAL_CAUSES[-end.exit.code]]
    return Verdict(signature, "medium", [Hit(signature, end.at, end.text, end.stream)])
