"""Rules for runs that ended well, whatever they printed, and for those that were not the intended run."""

from __future__ import annotations

import re

from dstui.diagnosis.failure_context import FailureContext
from dstui.diagnosis.findings import Hit, Verdict
from dstui.diagnosis.signatures import BY_ID

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
    return Verdict(BY_ID["BENIGN-NOISE" if noise else "SUCCESS"], "high" if context.found.ended else "medium", noise)


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
    """Decide for a success if nothing failed and the last lines say so. That nothing failed is no proof: a log may break off."""
    found = context.found
    if context.failed or found.end_untold or any(hit.signature.role == "cascade" and not _is_noise(hit) for hit in found.hits):
        return None
    if noise := [hit for hit in found.hits if hit.raised is not None and hit.raised.at_exit]:
        return Verdict(BY_ID["BENIGN-NOISE"], "medium", noise)
    if found.world and 0 < len(found.well) < found.world:
        return None  # some ranks ended well, and the others have not ended
    reported = [hit for hit in found.hits if hit.signature.id == "LAST-WORDS" and hit.at[1] >= found.last.get(hit.at[0], 0)]
    # earlier steps may print it too
    reported += [hit for hit in found.hits if hit.signature.id == "LAST-WORD" and context.in_last_lines(hit)]
    return Verdict(BY_ID["SUCCESS"], "medium", reported) if reported else None


def _is_noise(hit: Hit) -> bool:
    """Return whether a hit looks like an error but came at the exit of a process."""
    return hit.raised is not None and hit.raised.ignored
