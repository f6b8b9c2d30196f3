"""The last stage: turn a verdict into a diagnosis with evidence, fixes and notes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dstui.diagnosis.diagnosis import Diagnosis, Evidence, Kind
from dstui.diagnosis.findings import FACTS, Hit, Verdict
from dstui.diagnosis.reasoning.failure_context import FailureContext
from dstui.diagnosis.reasoning.origin import every_rank, named_by_launcher
from dstui.diagnosis.reasoning.rank_resolution import NUMBER
from dstui.diagnosis.recognition.exceptions import reading
from dstui.diagnosis.reporting.candidates import MAX_CAUSES, by_a_key, candidates
from dstui.diagnosis.signature import Signature
from dstui.diagnosis.signatures import BY_ID
from dstui.plan.finding import Fix

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

MAX_LINES = 6
KINDS: dict[str, Kind] = {"stop": "stop", "success": "success", "benign": "benign"}
WHAT = re.compile(r"^\s*what\(\):\s*")
"""C++ writes this before the reason of an uncaught exception."""
DETAIL = re.compile(rf"{WHAT.pattern}|- ds \S+=.* vs hf ")
"""Lines below the one that shows a cause, each with further details."""
LAST_STARTED = re.compile(r"--local[-_]rank=(\d+)'.* exits with return code")
BATCH = re.compile(r"world_size (\d{1,9}) != (\d{1,9}) \* (\d{1,9}) \* (\d{1,9})")
"""train_batch_size, micro-batch, accumulation and ranks in DeepSpeed's assertion message."""
SUBJECT = re.compile(r"No module named '([\w.]+)'|(?:No such file or directory|Is a directory|Not a directory): '([^']+)'$")
LONGEST_NAME = 120
"""Characters of the end of a path in a title."""
UNKNOWN = "Nothing in the logs says why"
LAST_LINE = 120
"""Characters of the last line in the answer if nothing shows the end."""
BY_A_KEY = "Ctrl-C in its terminal, the stop button of its notebook, or SIGINT from another program."
NO_END = "Nothing in this text says how it ended"


def answer(verdict: Verdict, context: FailureContext, plan: Plan | None = None) -> Diagnosis:
    """Return the diagnosis for a verdict. The fixes are patches if the Plan is known."""
    if verdict.signature is None:
        return _unknown(context, candidates(context, verdict, plan is not None))
    signature = verdict.signature
    if signature.id == "KILLED-UNKNOWN" and "OOM-HOST" in context.found.ruled_out:
        signature = BY_ID["KILLED-NOT-OOM"]
    evidence = _evidence(context, verdict)
    ranks = sorted({hit.rank for hit in verdict.hits if hit.rank is not None and hit.signature.role == "root"})
    hosts = {hit.host for hit in verdict.hits if hit.host and (verdict.rank is None or hit.rank == verdict.rank)}
    exception = _unknown_exception(verdict) or _words_of_abort(verdict)
    path, look = reading(exception.raised, exception.text) if exception and exception.raised else (signature.cause, "")
    path = BY_A_KEY if by_a_key(verdict) else path
    kind = "benign" if signature.id == "BENIGN-NOISE" else KINDS.get(signature.role, "failure")
    return Diagnosis(
        signature.answer or signature.id,
        kind,
        verdict.confidence,
        _title(signature, exception, subject := _subject(verdict)),
        path,
        evidence,
        verdict.rank if kind == "failure" else None,
        tuple(ranks),
        hosts.pop() if len(hosts) == 1 else None,
        signature.confirm.replace("import NAME", f"import {subject or 'NAME'}"),
        (Fix(look),) if look else _fixes(signature, verdict, plan),
        tuple(verdict.others),
        tuple(_notes(context, verdict)),
        every_rank=every_rank(context, verdict.hits),
        last_error=_last_error(context, verdict),
        could_be=candidates(context, verdict, plan is not None) if kind in ("failure", "stop") else (),
    )


def _title(signature: Signature, hit: Hit | None, subject: str) -> str:
    """Return what happened, in one sentence; for an exception its own message, and for something missing its name."""
    if hit is not None:
        return f"{signature.title}: {WHAT.sub('', hit.text).strip()[:200].rstrip('.:')}"
    return f"{signature.title}: {subject}" if subject else signature.title


def _subject(verdict: Verdict) -> str:
    """Return the name of the package, or the end of the path, that the first message says is missing; "" if it names none."""
    first = verdict.hits[0] if verdict.hits else None
    named = SUBJECT.search(first.text) if first is not None and first.raised is not None and first.signature.role == "root" else None
    if named is None:
        return ""
    name = named[1] or named[2]
    return name if len(name) <= LONGEST_NAME else f"…{name[-LONGEST_NAME:]}"


def _unknown_exception(verdict: Verdict) -> Hit | None:
    """Return the exception if the verdict is one that no signature knows."""
    first = verdict.hits[0] if verdict.hits else None
    return first if first is not None and first.raised is not None and verdict.signature is BY_ID["USER-PY"] else None


def _last_error(context: FailureContext, verdict: Verdict) -> Evidence | None:
    """Return the last exception of the text besides those that show the cause. None for several files, whose order is unknown."""
    if len(context.found.files) != 1:
        return None
    raised = [
        hit
        for hit in context.found.hits
        if hit.signature.role in ("root", "symptom")
        and hit.raised
        and hit.raised.traced
        and not (hit.raised.ignored or hit.raised.in_launcher)
    ]
    last = max(raised, key=lambda hit: hit.at, default=None)
    if last is None or any(_same_words(last, hit) for hit in (*verdict.hits, *verdict.sub)):
        return None
    return context.found.evidence(last.at, last.text, last.rank, last.host)


def _same_words(hit: Hit, other: Hit) -> bool:
    return hit.at == other.at or NUMBER.sub("", hit.text) == NUMBER.sub("", other.text)


def _words_of_abort(verdict: Verdict) -> Hit | None:
    """Return the line in which native code gives the reason for its abort."""
    return next((hit for hit in verdict.hits if verdict.signature is BY_ID["SIGABRT"] and WHAT.match(hit.text)), None)


def _evidence(context: FailureContext, verdict: Verdict) -> tuple[Evidence, ...]:
    """Return the lines that show the cause: the first of each rank, details about it, and how the processes ended."""
    found, lines = context.found, list[Evidence]()
    reported: set[tuple[int | None, str, bool, str]] = set()
    for hit in [*verdict.hits, *_once(verdict.sub)]:
        detail = hit.text if DETAIL.match(hit.text) else ""
        key = (hit.rank, hit.signature.id, hit.stream == FACTS, detail)  # facts about the machine are another kind of evidence
        if key in reported:
            continue
        reported.add(key)
        if hit.raised and hit.raised.own.file and not hit.raised.in_launcher:
            lines.append(found.evidence((hit.at[0], hit.raised.own.number), hit.raised.own.text, hit.rank, hit.host))
        lines.append(found.evidence(hit.at, hit.text, hit.rank, hit.host))
    ends = [found.evidence(end.at, end.text, end.rank, end.host) for end in context.failed_ends if verdict.signature is not BY_ID["HANG"]]
    return tuple(dict.fromkeys([*lines[:MAX_LINES], *ends[:2]]))


def _once(hits: Sequence[Hit]) -> list[Hit]:
    return list({hit.signature.id: hit for hit in reversed(hits)}.values())


def _fixes(signature: Signature, verdict: Verdict, plan: Plan | None) -> tuple[Fix, ...]:
    """Return the fixes, those of the more specific finding first; a patch only if there is something to change in the Plan."""
    remedies = [way for hit in _once(verdict.sub) for way in hit.signature.all_remedies()] if signature.id == "OP-BUILD" else []
    fixes: dict[str, Fix] = {}
    for way in [*remedies, *signature.all_remedies()]:
        patch = way.patch(plan) if way.patch and plan else None
        if way.patch and plan and patch is None:
            continue  # the Plan has it already, or lacks the setting
        fixes.setdefault(way.text, Fix(way.text, tuple(patch) if patch else None))
    return tuple(fixes.values())


def _notes(context: FailureContext, verdict: Verdict) -> Iterator[str]:
    """Yield notes: why the launcher's message is misleading, and other remarks."""
    found, signature = context.found, verdict.signature
    role = signature.role if signature is not None else ""
    if verdict.rank is not None:
        named = {end.rank for end in context.failed_ends if end.rank is not None and end.stream.split(":", 1)[1] in found.agents}
        if named and verdict.rank not in named:
            yield f"torchrun names rank {min(named)}: that is the first that ended, not the first that failed."
        if {int(rank) for end in context.failed_ends for rank in LAST_STARTED.findall(end.text)} - {verdict.rank}:
            yield "The command in DeepSpeed's line `exits with return code` is that of the rank started last: only its code counts."
    if role == "root" and any(hit.signature.id == "CVD-IGNORED" for hit in found.hits):
        yield "CUDA_VISIBLE_DEVICES was ignored: the launcher was told which GPUs to use in another way."
    if signature is BY_ID["OOM-GPU"] and len(context.ranks) > 1:
        yield _who_ran_out({hit.rank for hit in verdict.hits}, len(context.ranks))
    if signature is BY_ID["BATCH-ASSERT"] and (counted := _who_counted([hit.text for hit in verdict.hits])):
        yield counted
    missing = context.silent() if role == "symptom" else []
    if 0 < len(missing) < max(len(context.ranks), 2):
        listed = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        yield f"No message about it from rank {listed}: first check what {'it' if len(missing) == 1 else 'they'} did."
    remark = found.remarks.get(signature.id) if signature is not None else None
    if remark and all(hit.text != remark for hit in verdict.hits):
        yield remark
    yield from sorted(f"{title}." for title in {hit.signature.title for hit in found.hits if hit.signature.role == "performance"})


def _who_ran_out(ranks: set[int | None], world: int) -> str:
    """Return what the set of ranks that ran out of memory says about the reason."""
    if ranks == {0}:
        return "Only rank 0 ran out: something is on its GPU that the others do not hold."
    if None not in ranks and len(ranks) == 1:
        return "Only one rank ran out: look for another process on its GPU, or for a longer batch."
    return "Every rank ran out: the run is too large for these GPUs." if len(ranks) == world else "Several ranks ran out."


def _who_counted(lines: Sequence[str]) -> str:
    """Return what the numbers of an inconsistent batch say about the number of ranks; "" if nothing."""
    numbers = next((tuple(map(int, found.groups())) for line in lines if (found := BATCH.search(line))), None)
    if numbers is None or not (each := numbers[1] * numbers[2]) or numbers[0] % each:
        return ""
    total, world = numbers[0] // each, numbers[3]
    if total == world:
        return ""
    if world == 1:
        return f"The batch size is one for {total} ranks, and DeepSpeed counts 1: no launcher started it, or WORLD_SIZE was lost."
    if total == 1:
        return (
            f"Whoever filled in train_batch_size (accelerate, the Trainer) counted 1 process, and DeepSpeed counts {world}: start it by "
            "`accelerate launch` or the deepspeed launcher alone, and make the Accelerator or TrainingArguments after torch.distributed."
        )
    return f"The batch size is one for {total} ranks, and DeepSpeed counts {world}."


def _unknown(context: FailureContext, could_be: tuple[str, ...]) -> Diagnosis:
    """Return a diagnosis without a cause: the first error of each rank is shown."""
    found, lines = context.found, list[Evidence]()
    for hit in sorted(found.hits, key=context.order):
        if hit.signature.role in ("cascade", "root") and all(line.rank != hit.rank or line.text != hit.text for line in lines):
            lines.append(found.evidence(hit.at, hit.text, hit.rank, hit.host))
    for end in context.failed_ends[:2]:
        lines.append(found.evidence(end.at, end.text, end.rank, end.host))
    rank, certain = context.suspect()
    ended = min((hit.at for hit in found.hits if hit.signature.id == "LAST-WORDS"), default=None)
    failed = context.failed or any(hit.signature.role == "cascade" and (ended is None or hit.at < ended) for hit in found.hits)
    if not failed and (passed := _passed(context)):
        return _followed_by_text(context, passed, could_be)
    return Diagnosis(
        None,
        "failure" if failed else None,
        "low",
        UNKNOWN if failed else NO_END,
        evidence=tuple(lines[:MAX_LINES]) if failed else (),
        first_failing_rank=(rank if certain else named_by_launcher(context)) if failed else None,
        notes=(*_where_to_look(context), *(found.cut if failed or found.cut else _what_would_show_the_end(context))),
        could_be=could_be,
    )


def _where_to_look(context: FailureContext) -> tuple[str, ...]:
    """Return the notes of the text that name another log, which has the reason."""
    hints = {hit.signature for hit in context.found.hits if hit.signature.role == "hint" and hit.signature.confirm}
    return tuple(f"{one.title}: {one.confirm}" for one in sorted(hints, key=lambda one: one.id))


def _what_would_show_the_end(context: FailureContext) -> tuple[str, ...]:
    """Return the last line of the text, and which other output would show how the run ended."""
    if len(context.found.files) != 1 or not (last := context.found.ending.get(0)):
        return ()
    number, line = last[-1]
    return (
        f"The last line, {number}, is: {line.strip()[:LAST_LINE]}",
        "The output of the launcher or the scheduler has the exit status: dstui diagnose takes several files at once.",
    )


def _passed(context: FailureContext) -> Hit | None:
    """Return the last error that was followed by further output, as if the program, or another run in the same file, had continued."""
    found = context.found
    survived = [hit for hit in found.hits if hit.signature.role == "root" and hit.raised and hit.raised.traced and not hit.raised.at_exit]
    left = [hit for hit in (*found.passed, *survived) if not (hit.raised and hit.raised.of_destructor)]
    return max(left, key=lambda hit: hit.at, default=None)


def _followed_by_text(context: FailureContext, hit: Hit, could_be: tuple[str, ...]) -> Diagnosis:
    """Return the diagnosis for an error that text follows: the error is shown, with its likeliest cause."""
    cause = hit.signature.answer or hit.signature.id
    return Diagnosis(
        None,
        None,
        "low",
        f"{NO_END}; an error is at line {hit.at[1]}, and text follows it",
        evidence=(context.found.evidence(hit.at, hit.text, hit.rank, hit.host),),
        notes=tuple(context.found.cut),
        could_be=tuple(dict.fromkeys((cause, *could_be)))[:MAX_CAUSES],
    )
