"""Rules for ends on purpose, for runs that ended well, and for excerpts without an end. Pure.

Pasted text is often only the error, without a traceback's head, a launcher's line or the end of a process.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dstui.diagnosis.findings import Hit, Verdict
from dstui.diagnosis.reasoning.causes import independent
from dstui.diagnosis.reasoning.failure_context import FORCED, NEVER, SOON, FailureContext
from dstui.diagnosis.reasoning.origin import first_failing
from dstui.diagnosis.recognition.exits import SIGNAL_CAUSES
from dstui.diagnosis.recognition.labels import HANDLED, REMARKED, WARNED
from dstui.diagnosis.signatures import BY_ID

STOPS = ("SLURM-TIME", "SLURM-PREEMPT", "SLURM-CANCEL", "USER-SIGNAL", "SIGHUP", "CTRL-C")
"""The first one found explains the others: SLURM's time limit sends the SIGTERM."""


def asked(context: FailureContext) -> Verdict | None:
    """Decide for a stop if the end of the job was requested and no rank had failed before."""
    stop = context.found.stop
    if stop is None:
        return None
    earlier = [end for end in context.failed_ends if stop.at is not None and context.found.ended.get(end.rank or 0, NEVER) < stop.at]
    if earlier:
        return None
    return Verdict(BY_ID[stop.cause], "high", [Hit(BY_ID[stop.cause], stop.place, stop.text, "")])


def host_lost(context: FailureContext) -> Verdict | None:
    """Decide for lost hosts if the supervisor ended the job because hosts were unreachable for too long."""
    hits = context.found.lost_hosts
    return Verdict(BY_ID["HOST-LOST"], "high", hits, hits[0].rank) if hits else None


def stopped(context: FailureContext) -> Verdict | None:
    stops = [hit for hit in context.found.hits if hit.signature.role == "stop" and not _followed(context, hit)]
    for one in STOPS:
        if hits := [hit for hit in stops if hit.signature.id == one]:
            failed = any(hit.signature.role == "root" and hit.raised and hit.raised.traced for hit in context.found.hits)
            failed = failed or any(_reported_before(hits[0], hit) for hit in context.found.named)
            return Verdict(BY_ID[one], "medium" if failed or context.end_in_doubt or not BY_ID[one].sure else "high", hits)
    return None


def _reported_before(stop: Hit, error: Hit) -> bool:
    """Return whether an exception without a traceback was reported shortly before a stop, which may be the reaction to it."""
    return error.at[0] == stop.at[0] and 0 < stop.at[1] - error.at[1] <= SOON and not HANDLED.search(error.text)


def _followed(context: FailureContext, stop: Hit) -> bool:
    """Return whether the scheduler only cancelled what had failed by itself: after a task's failure or a rank's timeout message."""
    if stop.signature.id != "SLURM-CANCEL":
        return False
    before = [end for end in context.failed_ends if end.at[0] == stop.at[0] and end.at < stop.at]
    return any(end.exit.task is not None for end in before) or bool(context.timed_out_before(stop))


def ended_by_signal(context: FailureContext) -> Verdict | None:
    """Decide for a stop if the launcher, or every rank, ended by a signal that requests it, without a further message."""
    asked = [end for end in context.found.ends if end.exit.code in (-1, -2, -15)]
    if any(end.exit.code not in (-1, -2) for end in context.failed_ends):
        asked = [end for end in asked if end.exit.local]  # torchrun's local rank of the process that ended by itself
    heard = [hit for hit in context.found.hits if hit.signature.id == "SIGTERM-HEARD" and not _ends_helpers(context, hit)]
    if heard and not asked and not context.failed:
        return Verdict(BY_ID["CTRL-C"], "medium", heard)
    if not asked:
        return None
    end = asked[0]
    signature = BY_ID[SIGNAL_CAUSES[-end.exit.code]]
    return Verdict(signature, "medium", [Hit(signature, end.at, end.text, end.stream)])


def _ends_helpers(context: FailureContext, heard: Hit) -> bool:
    """Return whether the job's script itself ended the tasks of a step, since it reports its success after that."""
    return heard.text.startswith(FORCED) and any(
        hit.signature.id == "LAST-WORDS" and hit.at[0] == heard.at[0] and hit.at > heard.at for hit in context.found.hits
    )


NAN_REPORTS = 3
NAN_LASTS = 500
"""The most lines between two reports of the loss."""
FINITE = re.compile(r"(?i)loss\w*['\"]?\s{0,4}[:=]?\s{0,4}(?:tensor\()?\d")
"""A report of a finite loss."""


def well(context: FailureContext) -> Verdict | None:
    """Decide for a success if the run exited with 0, whatever it printed, unless it was not the intended run."""
    if not context.ended_well:
        return None
    if verdict := quiet(context):
        return verdict
    noise = [hit for hit in context.found.hits if _is_noise(hit)]
    # Text alone cannot show whether the configuration was as intended; a job folder has it.
    reported = [] if noise else _report_of_the_end(context)
    return Verdict(BY_ID["BENIGN-NOISE" if noise else "SUCCESS"], "high" if context.found.ended else "medium", noise or reported)


def _report_of_the_end(context: FailureContext) -> list[Hit]:
    """Return the line in which a launcher, or a shell, reports an exit with 0, if it is among the last ones."""
    at = context.found.well_at
    last = context.found.ending.get(at[0], []) if at else []
    return [Hit(BY_ID["SUCCESS"], at, text.strip(), "") for number, text in last if at and number == at[1]]


def quiet(context: FailureContext) -> Verdict | None:
    """Decide for an unintended behaviour of a run that continued."""
    if context.failed and not context.ended_well:
        return None
    found = context.found
    if found.orphaned is not None:
        hit = Hit(
            BY_ID["ZOMBIE"], found.orphaned, "the launcher of the node has lost its parent: deepspeed.launcher.launch with PPID 1", ""
        )
        return Verdict(BY_ID["ZOMBIE"], "medium", [hit])
    notes = [hit for hit in found.hits if hit.signature.id == "NOHOSTFILE-NOTE"]
    if notes and found.several_nodes:
        return Verdict(BY_ID["HOSTFILE-IGNORED"], "medium", notes)
    meant = {below for hit in found.hits if hit.signature.role == "benign" for below in hit.signature.explains}
    for hit in found.hits:
        if hit.signature.role == "quiet" and hit.signature.id not in meant:
            same = [other for other in found.hits if other.signature is hit.signature]
            if hit.signature.id != "NAN" or (len(same) >= NAN_REPORTS and _lasts(context, same[-1])):
                return Verdict(hit.signature, "high" if hit.signature.sure and context.found.ended else "medium", same)
    return None


def _lasts(context: FailureContext, hit: Hit) -> bool:
    """Return whether the loss was still nan at its last report: the last lines have no number after it, and little else."""
    found = context.found
    last = found.tails.get(found.files[hit.at[0]], [])
    numbers = [(FINITE.search(line), any(sign.matches(line) for sign in hit.signature.all_signs())) for line in last]
    losses = [not_finite for finite, not_finite in numbers if finite or not_finite]
    return (not losses or losses[-1]) and found.final.get(hit.at[0], 0) - hit.at[1] <= NAN_LASTS


def nothing_failed(context: FailureContext) -> Verdict | None:
    """Decide for a success if nothing failed and the last lines say so. The absence of a failure is not a proof: a log may break off."""
    found = context.found
    done = min((hit.at for hit in found.hits if hit.signature.id == "LAST-WORDS"), default=NO_PLACE)
    lost = (hit for hit in found.hits if hit.signature.role == "cascade" and not _is_noise(hit))
    if context.failed or found.end_untold or any(hit.at < done for hit in lost):  # agents that end later do not find the first one's store
        return None
    if noise := [hit for hit in found.hits if hit.raised is not None and hit.raised.at_exit]:
        return Verdict(BY_ID["BENIGN-NOISE"], "medium", noise)
    if found.world and 0 < len(found.well) < found.world:
        return None  # some ranks ended well, and the others have not ended
    reported = [hit for hit in found.hits if hit.signature.id == "LAST-WORDS" and hit.at[1] >= found.last.get(hit.at[0], 0)]
    # earlier steps may print it too
    reported += [hit for hit in found.hits if hit.signature.id == "LAST-WORD" and context.in_last_lines(hit)]
    return Verdict(BY_ID["SUCCESS"], "medium", reported) if reported else None


NO_PLACE = (1 << 30, 0)
"""A place behind all others."""


def _is_noise(hit: Hit) -> bool:
    """Return whether a hit looks like an error but came at the exit of a process."""
    return hit.raised is not None and hit.raised.ignored


LAUNCHER_REPORT = re.compile(r"^Error: |(?i:process|rank|task|worker|command|child)\w*\b.{0,80}(?:exit|non-?zero|fail|died|terminated)")
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
    harmless = (HANDLED, WARNED, LAUNCHER_REPORT)
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
    if hit.raised is None and hit.noticed is None and REMARKED.match(hit.text):
        return False
    if hit.signature.id in GOES_ON and not context.in_last_lines(hit):
        return False
    return context.may_be_the_end(hit)
