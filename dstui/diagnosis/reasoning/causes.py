"""The rule of the first real cause: what can be one, what another one explains, which rank it belongs to, how sure it is."""

from __future__ import annotations

import builtins

from dstui.diagnosis.diagnosis import Confidence
from dstui.diagnosis.findings import FACTS, Hit, Verdict
from dstui.diagnosis.reasoning.failure_context import AFTERWARDS, FailureContext
from dstui.diagnosis.reasoning.last_run import PARSER_ERRORS
from dstui.diagnosis.reasoning.origin import MISSING, chain_of, first_failing, uncaught
from dstui.diagnosis.recognition import activity
from dstui.diagnosis.recognition.exception_kinds import OWN_MODULE, WRONG_CALL
from dstui.diagnosis.recognition.exceptions import points_elsewhere
from dstui.diagnosis.recognition.labels import HANDLED, REMARKED, WARNED
from dstui.diagnosis.recognition.subjects import PROGRAMMING, subjects_of
from dstui.diagnosis.recognition.traces import Raised
from dstui.diagnosis.signature import Sign, Signature
from dstui.diagnosis.signatures import BY_ID

AFTER_A_STOP = frozenset({"OOM-HOST", "XID"})
"""Messages of the kernel arrive late: they count even after a stop."""
NETWORK = frozenset({"NCCL-SYSTEM", "NCCL-CUDA", "IB", "PORT-IN-USE"})
"""Real causes that also look like a peer's death: not independent of an earlier cause."""
SHELL_MESSAGES = frozenset(
    {"SCRIPT-PERM", "SCRIPT-GONE", "COMMAND-GONE", "TOOL-GONE", "FILE-GONE", "ENV-GONE", "SHELL-STOPPED", "SCRIPT-SHELL", "NO-DS-CMD"}
)
"""Messages of a shell that cannot run something. The job's script continues after them."""
PREAMBLE = SHELL_MESSAGES | {"SUBMIT-REFUSED"}
"""Failures of the job's script that did not keep a program from running if something of it failed later."""
LEFT_THREAD = "terminate called without an active exception"
"""The message of C++ if a program ends for another reason while a thread is still running."""
AGAIN = 40
"""Lines after a launcher's last message that no rank of its run writes."""
STARTS = frozenset({"OMP-NOTE", "NOHOSTFILE-NOTE"})
"""The first messages of torchrun and DeepSpeed's launcher."""
FAR = 300
"""Lines around a message about a signal within which a mere mention may be its reason."""
LONG_AFTER = 1000
"""More lines than a rank writes after its peers have failed."""


def cause(context: FailureContext) -> Verdict | None:
    """Return the first real cause."""
    hard = [hit for hit in independent(roots(context)) if hit.signature.role == "root"]
    if not hard:
        return None
    first = min(hard, key=context.order)
    if first.signature.id not in NETWORK:
        hard = [hit for hit in hard if hit.signature.id not in NETWORK]
    same = sorted((hit for hit in hard if hit.signature is first.signature), key=context.order)
    others = dict.fromkeys(
        _answer(hit.signature) for hit in sorted(hard, key=context.order) if _answer(hit.signature) != _answer(first.signature)
    )
    sub = [hit for hit in roots(context) if hit.signature.id in first.signature.explains]
    broke = context.found.launcher_broke and not context.found.ends and not any(hit.raised for hit in hard)
    by_launcher = first.signature.launcher or broke or _raised_by_launcher(same) or first.signature.id in SHELL_MESSAGES
    rank, certain = (None, True) if by_launcher else first_failing(context, [*same, *sub])
    if rank is None and not by_launcher and not context.found.agents:
        rank = first.signature.only_rank
    confidence = _confidence(context, first, same, certain or rank is None)
    if confidence == "high" and (context.end_in_doubt or _is_followed(context, same) or _has_rival(context, same)):
        confidence = "medium"
    if others or _first_stop(context):
        confidence = "medium" if confidence == "high" else "low"
    return Verdict(first.signature, confidence, same, rank, list(others), sub)


def _is_followed(context: FailureContext, same: list[Hit]) -> bool:
    """Return whether something that the cause does not explain follows it in the file.

    Another exception may belong to a later run. Without an exit status, a line of the loop from above the error shows that the program may
    have continued.
    """
    if len(context.found.files) != 1:
        return False
    last, explains = max(hit.at for hit in same), same[0].signature.explains
    raised = [hit for hit in roots(context) if hit.at > last and hit.raised and hit.raised.traced and not hit.raised.in_launcher]
    if any(hit.signature.role == "root" and hit.signature is not same[0].signature and hit.signature.id not in explains for hit in raised):
        return True
    below = (text for number, text in context.found.ending.get(last[0], []) if number > last[1])
    return not context.failed_ends and activity.shape_recurs(context.found.loops, below, 1)


def _has_rival(context: FailureContext, same: list[Hit]) -> bool:
    """Return whether something else may explain the end: another failure that was survived or belongs to an earlier step, or a completion.

    A failure after the program has reported its completion may be one of its exit, or of a later step. A programming error in the script
    explains itself.
    """
    if same[0].raised and same[0].raised.in_user_code and same[0].raised.name in PROGRAMMING:
        return False
    cause, shared = same[0].signature, {chain_of(hit) for hit in same if hit.raised}
    for hit in context.found.hits:
        if hit.at[0] != same[0].at[0] or hit.signature is cause or hit.signature.id in cause.explains or chain_of(hit) in shared:
            continue
        if hit.signature.role == "success" and hit.at < same[0].at:
            return True
        raised = hit.raised is not None and hit.raised.traced and not (hit.raised.ignored or hit.raised.in_launcher)
        if hit.signature.role == "root" and (raised or (hit.raised is None and hit.signature.alone)):
            return True
    return False


def _raised_by_launcher(hits: list[Hit]) -> bool:
    """Return whether the launcher itself raised the exception, and no rank did."""
    raised = [hit.raised for hit in hits if hit.raised is not None]
    return bool(raised) and all(one.in_launcher for one in raised) and all(hit.rank is None for hit in hits)


def roots(context: FailureContext) -> list[Hit]:
    """Return hits that may be causes: not ignored, not handled, not after a stop."""
    hits = [hit for hit in context.found.hits if hit.signature.role in ("root", "symptom") and _counts(context, hit)] + context.deaths()
    stop = _first_stop(context)
    hits = [hit for hit in hits if not WARNED.search(hit.text)] or ([] if stop else hits)
    hits = _since_the_start(context, uncaught(context, _in_last_run(context, hits)))
    if stop is None:
        return hits
    if _went_on(context, stop):
        return [hit for hit in hits if hit.signature.id in AFTER_A_STOP]
    return [
        hit
        for hit in hits  # a command that a shell could not run did not end a job that was stopped later
        if hit.signature.id in AFTER_A_STOP or (hit.signature.id not in SHELL_MESSAGES and context.before(hit, stop))
    ]


def _went_on(context: FailureContext, stop: Hit) -> bool:
    """Return whether the run, or a later one in the same file, continued for long after the last error before the stop."""
    errors = [hit.at[1] for hit in context.found.hits if hit.at < stop.at and hit.signature.role in ("root", "symptom", "cascade")]
    return len(context.found.files) == 1 and not context.failed_ends and bool(errors) and stop.at[1] - max(errors) > LONG_AFTER


def _in_last_run(context: FailureContext, hits: list[Hit]) -> list[Hit]:
    """Return the hits without those of earlier runs in the same file, whose launcher had ended."""
    if len(context.found.files) > 1 or context.found.several_nodes:
        return hits
    ends = [hit.at for hit in context.found.hits if hit.signature.id == "CHILD-FAILED" and hit.raised and hit.raised.in_launcher]
    ends += [hit.at for hit in hits if hit.signature.id in PARSER_ERRORS]
    ends += [end.at for end in context.failed_ends if end.exit.whole]
    last = max((hit.at for hit in hits if hit.raised and hit.raised.traced), default=(0, 0))
    before = max((at for at in ends if last[1] - at[1] > AGAIN), default=(0, 0))
    over = min((end.at for end in context.failed_ends), default=(1, 0))
    starts = [hit.at for hit in context.found.hits if hit.signature.id in STARTS and hit.at > over]
    again = max((at for at in starts if any(hit.at > at for hit in hits)), default=(0, 0))
    late = [hit for hit in hits if hit.at > max(before, again)]
    return hits if late and all(hit.signature.id in MISSING for hit in late) else late  # they miss what an earlier step should have created


def _since_the_start(context: FailureContext, hits: list[Hit]) -> list[Hit]:
    """Return the hits without failures before a launcher started the ranks, which did not prevent that, if something failed later."""
    started = {**context.found.started} | {hit.at[0]: hit.at[1] for hit in reversed(context.found.hits) if hit.signature.id == "OMP-NOTE"}
    late = {hit.at[0] for hit in hits if hit.at[1] > started.get(hit.at[0], hit.at[1])}
    return [hit for hit in hits if hit.rank is not None or hit.at[0] not in late or hit.at[1] > started[hit.at[0]]]


def _counts(context: FailureContext, hit: Hit) -> bool:
    """Return whether a hit can have ended anything: an exception that was not ignored, a message that counts alone, or with a failure."""
    if hit.raised is not None:
        return not hit.raised.ignored and (context.failed or context.may_be_the_end(hit))
    if REMARKED.match(hit.text) and hit.noticed is None:
        return False
    return hit.signature.alone or (context.failed and not HANDLED.search(hit.text))


def independent(hits: list[Hit]) -> list[Hit]:
    """Return the hits that may be independent causes, after three filters in this order."""
    return _without_explained(_more_than_mentioned(_after_the_preamble(_unexplained(hits))))


def _after_the_preamble(hits: list[Hit]) -> list[Hit]:
    """Return the hits without those of the job's script before its ranks started.

    This drops commands that a shell could not run and steps that SLURM refused, if a program failed later, and unlabelled exceptions if
    ranks raised theirs later.
    """
    raised = [hit for hit in hits if hit.raised and hit.raised.traced and not hit.raised.in_launcher]
    failed = [*raised, *(hit for hit in hits if hit.signature.alone and hit.signature.id not in PREAMBLE)]
    return [
        hit
        for hit in hits
        if not (
            (hit.signature.id in PREAMBLE and any(hit.at[0] == other.at[0] and hit.at < other.at for other in failed))
            or (
                hit.rank is None
                and hit in raised
                and any(hit.at[0] == other.at[0] and hit.at < other.at and other.rank is not None for other in raised)
            )
        )
    ]


def _unexplained(hits: list[Hit]) -> list[Hit]:
    """Return the hits without those that another signature explains, unless both explain each other.

    See `Signature.explains`: for example, out of memory explains an NCCL error.
    """
    ids = {hit.signature.id for hit in hits}
    explained = {below for one in ids for below in BY_ID[one].explains if one not in BY_ID[below].explains}
    if any(hit.raised and hit.raised.traced and hit.signature.id == "USER-PY" for hit in hits):
        explained.add("SIGABRT")  # threads that are still running when an exception ends their program abort this way
    aborts = [hit for hit in hits if hit.signature.id == "SIGABRT"]
    if any(hit.raised and hit.raised.traced for hit in hits) and all(LEFT_THREAD in hit.text for hit in aborts):
        explained.add("SIGABRT")
    if any(hit.raised and hit.raised.traced and hit.signature.id != "KERNEL-GONE" for hit in hits):
        explained.add("KERNEL-GONE")  # a cell's exception is why it failed, whatever happened to the kernel
    return [hit for hit in hits if hit.signature.id not in explained]


def _more_than_mentioned(hits: list[Hit]) -> list[Hit]:
    """Return the hits without mere mentions, if an exception with a whole traceback, or a signal, ended the program."""
    if any(hit.raised and hit.raised.traced and hit.raised.clean for hit in hits):
        return [hit for hit in hits if _is_more_than_a_mention(hit)]
    deaths = [hit.at for hit in hits if hit.noticed is not None and hit.signature.id != "SIGABRT"]  # the reason of an abort is above it
    return [
        hit
        for hit in hits
        if _is_more_than_a_mention(hit) or any(hit.at[0] != at[0] or abs(hit.at[1] - at[1]) <= FAR for at in deaths or [hit.at])
    ]


def _is_more_than_a_mention(hit: Hit) -> bool:
    """Return whether a hit is more than a mention."""
    shown = hit.raised is not None or hit.noticed is not None or hit.signature.alone or hit.signature.in_code
    return shown or hit.signature.role == "symptom"


def _without_explained(hits: list[Hit]) -> list[Hit]:
    """Return the hits without plain exceptions of the user's program (USER-PY) on a rank with a known cause."""
    known = [hit for hit in hits if hit.signature.role == "root" and hit.signature.id != "USER-PY"]
    return [
        hit
        for hit in hits
        if hit.signature.id != "USER-PY" or not any(_same_process(hit, other) and not _may_precede(hit, other) for other in known)
    ]


def _may_precede(error: Hit, other: Hit) -> bool:
    """Return whether a programming error in the script was reported before a kill without a reason, which is then its consequence."""
    if other.signature.id != "KILLED-UNKNOWN" or error.raised is None or not error.raised.traced:
        return False
    return error.raised.in_user_code and error.raised.name in PROGRAMMING and error.at[0] == other.at[0] and error.at < other.at


def _same_process(hit: Hit, other: Hit) -> bool:
    """Return whether two hits belong, or may belong, to one rank."""
    if hit.rank is not None and other.rank is not None:
        return hit.rank == other.rank
    return True


def _confidence(context: FailureContext, first: Hit, hits: list[Hit], certain: bool) -> Confidence:
    signature = first.signature
    if signature.id == "USER-PY":
        return _script_confidence(first)
    if signature.id == "SIGBUS-SHM" and not any("us error" in hit.text or "shared memory" in hit.text for hit in hits):
        return "medium"  # the signal alone: a mapped file on a full disk causes it too
    guessed = first.raised is not None and not any(sign.matches(first.text) for sign in signature.all_signs())  # only from its place
    # unclear which of the two is too old
    own_import = signature.id == "IMPORT-TORCH" and first.raised is not None and _imports_itself(first.raised)
    if not signature.sure or not first.sure or not certain or guessed or own_import or _only_the_class(first) or _may_be_data(first):
        return "medium"
    shown = any(_is_an_end(context, hit) for hit in hits) or (signature.alone and any(map(context.in_last_lines, hits)))
    before = signature.id not in AFTER_A_STOP and any(
        end.at[0] == first.at[0] and end.at < (first.noticed or first.at) for end in context.failed_ends
    )
    return "high" if shown and not before else "medium"  # if a process had ended badly before, there may be an earlier cause


def _imports_itself(raised: Raised) -> bool:
    """Return whether the script, or PyTorch itself (two releases in one folder), imports a name that PyTorch does not have."""
    return raised.in_user_code or not raised.traced or "/site-packages/torch/" in raised.deepest.file


def _is_an_end(context: FailureContext, hit: Hit) -> bool:
    """Return whether something ended by this hit.

    That is an exception with its traceback, a signal, a fact that dstui recorded, or a message right above a bad end. An exception
    without its traceback may have been caught and printed, and after a mere message the program may have continued.
    """
    if hit.stream == FACTS or hit.noticed is not None or (hit.raised is not None and hit.raised.traced):
        return True
    if hit.signature.id in AFTER_A_STOP:
        return bool(context.failed_ends)
    if len(context.found.files) > 1:  # a log of each rank: the launcher's log has the ends
        return bool(context.failed_ends) and context.in_last_lines(hit)
    return any(end.at[0] == hit.at[0] and 0 <= end.at[1] - hit.at[1] <= AFTERWARDS for end in context.failed_ends)


def _may_be_data(hit: Hit) -> bool:
    """Return whether missing files of a model may be those of a data set: both lie on the hub, and the messages are equal."""
    if hit.signature.id != "MODEL-FILES":
        return False
    place = f"{hit.raised.own.file} {hit.raised.own.function}" if hit.raised else ""
    return "dataset" in f"{hit.text} {place}".lower()


def _only_the_class(hit: Hit) -> bool:
    """Return whether only the name of one of Python's own exceptions shows the cause, and its message says something unknown."""
    name, _, message = hit.text.partition(":")
    generic = hit.raised is not None and hasattr(builtins, hit.raised.name) and bool(message.strip())
    return generic and not any(sign.matches(message) or not sign.matches(name) for sign in _matching(hit))


def _matching(hit: Hit) -> list[Sign]:
    return [sign for sign in hit.signature.all_signs() if sign.matches(hit.text)]


def _script_confidence(hit: Hit) -> Confidence:
    """Return how sure it is that an exception with an unknown message is the script's own fault.

    A programming error in the script's own line is, unless it calls or imports what may belong to another release. If a library raised
    it and its message suggests another cause, it is a guess.
    """
    raised = hit.raised
    if raised is None:
        return "medium"
    if (raised.name == "TypeError" and WRONG_CALL.search(hit.text)) or OWN_MODULE.search(hit.text):
        return "medium"
    if raised.in_user_code and not raised.ignored and not points_elsewhere(raised, hit.text):
        return "high" if raised.name in PROGRAMMING or not subjects_of(hit.text) else "medium"
    return "low" if raised.name not in PROGRAMMING and subjects_of(hit.text) else "medium"


def _first_stop(context: FailureContext) -> Hit | None:
    """Return the first message about a stop that was not itself a consequence."""
    stops = [hit for hit in context.found.hits if hit.signature.role == "stop" and not _consequence(context, hit)]
    stops = [stop for stop in stops if not _is_from_earlier_run(context, stop)]
    return min(stops, key=context.order) if stops else None


def _is_from_earlier_run(context: FailureContext, stop: Hit) -> bool:
    """Return whether an exception ended a program so long after a stop that it must belong to another run in the same file."""
    if len(context.found.files) > 1 or context.found.several_nodes:
        return False
    return any(hit.raised and hit.raised.traced and hit.at[1] - stop.at[1] > LONG_AFTER for hit in context.found.hits)


def _consequence(context: FailureContext, stop: Hit) -> bool:
    """Return whether a scheduler or a launcher stopped the run because of an earlier failure."""
    ended = any(end.at[0] == stop.at[0] and end.at < stop.at and not end.exit.whole for end in context.failed_ends)
    explained = any(hit.at < stop.at and stop.signature.id in hit.signature.explains for hit in context.found.hits)
    return ended or explained or (stop.signature.id == "SLURM-CANCEL" and bool(context.timed_out_before(stop)))


def _answer(signature: Signature) -> str:
    return signature.answer or signature.id
