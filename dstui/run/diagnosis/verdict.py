"""The verdict: causes told from consequences. Pure.

Every hit has a role, and roles decide before time does: what another rank's death brings about is never the cause, what says of itself
that it waits is the cause only where nothing better is known, and of real causes the first wins, the others being named beside it. What
came after somebody stopped the run is the fallout of the stop; a stop that came after a failure is the fallout of the failure. Nothing
is guessed: where the text does not tell, there is no cause, and no rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from dstui.run.diagnosis.case import NEVER, Case
from dstui.run.diagnosis.exits import SIGNAL_CAUSES, TIMED_OUT
from dstui.run.diagnosis.findings import Findings, Hit
from dstui.run.diagnosis.model import Confidence
from dstui.run.diagnosis.signature import Signature
from dstui.run.diagnosis.signatures import BY_ID

STOPS = ("SLURM-TIME", "SLURM-PREEMPT", "SLURM-CANCEL", "SIGHUP", "CTRL-C")
"""The first that was found explains the others: SLURM's time limit sends the SIGTERM."""
AFTER_A_STOP = frozenset({"OOM-HOST", "XID"})
"""The kernel's words come late: they count although a stop stands above them."""
WAITED = frozenset({"GLOO-PEER", "NCCL-REMOTE", "GLOO-TIMEOUT", "NCCL-WATCHDOG", "RDZV-CASCADE"})
NETWORK = frozenset({"NCCL-SYSTEM", "NCCL-CUDA", "IB", "PORT-IN-USE"})
"""Real causes, but also what a peer's death may look like: not independent of a cause that came before."""
WAITING_FOR = ("JIT-LOCK", "INIT-HANG-P2P")
"""Hints that tell what a run that hung was waiting for."""
HANDLED = re.compile(r"(?i)\b(?:retry|retrying|skipped|skipping|fall(?:ing)? ?back|ignored|ignoring|recovered)\b")
"""What a program says of an error that it has dealt with."""
NAN_REPORTS = 3


@dataclass
class Verdict:
    """The answer before it is put into words. `signature` is None where there is none."""

    signature: Signature | None
    confidence: Confidence = "low"
    hits: list[Hit] = field(default_factory=list)
    rank: int | None = None
    others: list[str] = field(default_factory=list)
    sub: list[Hit] = field(default_factory=list)
    """Hits that the cause explains and that say more about it: the compiler's own error."""
    by_launcher: bool = False


def judge(found: Findings) -> tuple[Verdict, Case]:
    """The cause of what the logs say."""
    case = Case(found)
    rules: tuple[Callable[[Case], Verdict | None], ...] = (
        _asked,
        _well,
        _timed_out,
        _cause,
        _stop,
        _symptom,
        _ended_by_signal,
        _left_early,
        _hint,
        _quiet,
        _nothing,
    )
    for rule in rules:
        verdict = rule(case)
        if verdict is not None:
            return verdict, case
    return Verdict(None), case


def _asked(case: Case) -> Verdict | None:
    """Somebody asked the job to end, and no rank had failed before."""
    stop = case.found.stop
    if stop is None:
        return None
    earlier = [end for end in case.bad_ends if stop.at is not None and case.found.ended.get(end.rank or 0, NEVER) < stop.at]
    if earlier:
        return None
    case.found.files.append(stop.file)
    return Verdict(BY_ID[stop.cause], "high", [Hit(BY_ID[stop.cause], (len(case.found.files) - 1, 1), stop.text, "")])


def _well(case: Case) -> Verdict | None:
    """The run ended with 0, whatever it printed; but it may not have been the run that was meant."""
    if not case.ended_well:
        return None
    if quiet := _quiet(case):
        return quiet
    noise = [hit for hit in case.found.hits if _is_noise(hit)]
    # Text alone cannot show whether the configuration was what its author meant; a job folder holds it.
    return Verdict(BY_ID["BENIGN-NOISE" if noise else "SUCCESS"], "high" if case.found.ended else "medium", noise)


def _timed_out(case: Case) -> Verdict | None:
    """timeout(1) had to end it, and nobody had complained before."""
    late = [end for end in case.bad_ends if end.exit.code == TIMED_OUT]
    if not late or _roots(case):
        return None
    hints = [hit for one in WAITING_FOR for hit in case.found.hits if hit.signature.id == one and hit.at > case.found.loaded]
    if hints:
        return Verdict(hints[0].signature, "medium", hints)
    rank, _ = case.suspect()
    hits = [Hit(BY_ID["HANG"], end.at, end.text, end.stream) for end in late]
    return Verdict(BY_ID["HANG"], "medium", hits, rank if rank is not None else case.last_said())


def _cause(case: Case) -> Verdict | None:
    """The first real cause."""
    roots = _independent(_roots(case))
    hard = [hit for hit in roots if hit.signature.role == "root"]
    if not hard:
        return None
    first = min(hard, key=case.order)
    if first.signature.id not in NETWORK:
        hard = [hit for hit in hard if hit.signature.id not in NETWORK]
    same = sorted((hit for hit in hard if hit.signature is first.signature), key=case.order)
    others = dict.fromkeys(
        _answer(hit.signature) for hit in sorted(hard, key=case.order) if _answer(hit.signature) != _answer(first.signature)
    )
    sub = [hit for hit in _roots(case) if hit.signature.id in first.signature.explains]
    by_launcher = first.signature.launcher or bool(first.raised and first.raised.in_launcher)
    rank, certain = (None, True) if by_launcher else _rank_of(case, [*same, *sub])
    confidence = _confidence(case, first, same, certain or rank is None)
    if others and confidence == "high":
        confidence = "medium"
    return Verdict(first.signature, confidence, same, rank, list(others), sub, by_launcher)


def _roots(case: Case) -> list[Hit]:
    """Hits that may be causes: not ignored, not handled, not after a stop."""
    hits = [hit for hit in case.found.hits if hit.signature.role in ("root", "symptom") and _counts(case, hit)] + case.deaths()
    stop = _first_stop(case)
    if stop is None:
        return hits
    return [hit for hit in hits if hit.signature.id in AFTER_A_STOP or case.before(hit, stop)]


def _counts(case: Case, hit: Hit) -> bool:
    """Whether a hit can have ended anything: an exception that nobody ignored, a word that stands alone, or a failure around it."""
    if hit.raised is not None:
        return not hit.raised.ignored
    return hit.signature.alone or (case.failed and not HANDLED.search(hit.text))


def _independent(roots: list[Hit]) -> list[Hit]:
    """Without what another of them explains, and without plain exceptions of a rank that has a better-known cause."""
    ids = {hit.signature.id for hit in roots}
    explained = {below for one in ids for below in BY_ID[one].explains if one not in BY_ID[below].explains}
    left = [hit for hit in roots if hit.signature.id not in explained]
    known = [hit for hit in left if hit.signature.role == "root" and hit.signature.id != "USER-PY"]
    return [hit for hit in left if hit.signature.id != "USER-PY" or not any(_same_process(hit, other) for other in known)]


def _same_process(hit: Hit, other: Hit) -> bool:
    """Whether two hits are, or may be, of one rank."""
    if hit.rank is not None and other.rank is not None:
        return hit.rank == other.rank
    return True


def _rank_of(case: Case, hits: list[Hit]) -> tuple[int | None, bool]:
    """The rank that a cause began on, and whether the text says so rather than the circumstances."""
    known = [hit for hit in hits if hit.rank is not None]
    if known:
        return known[0].rank, True
    if case.single:
        return 0, True
    if any(hit.raised for hit in hits):
        return None, True  # a traceback without a label: somebody's
    return case.suspect()


def _confidence(case: Case, first: Hit, hits: list[Hit], certain: bool) -> Confidence:
    signature = first.signature
    if signature.id == "USER-PY":
        return "high" if first.raised and first.raised.in_user_code and not first.raised.ignored else "medium"
    if signature.id == "SIGBUS-SHM" and not any("us error" in hit.text or "shared memory" in hit.text for hit in hits):
        return "medium"  # the signal alone: a mapped file on a full disk does it too
    if not signature.sure or not certain:
        return "medium"
    shown = signature.alone or any(hit.raised or case.bad_ends for hit in hits)
    return "high" if shown else "medium"


def _first_stop(case: Case) -> Hit | None:
    """The first word of a stop that was not itself a consequence."""
    stops = [hit for hit in case.found.hits if hit.signature.role == "stop" and not _consequence(case, hit)]
    return min(stops, key=case.order) if stops else None


def _consequence(case: Case, stop: Hit) -> bool:
    """Whether a scheduler or a launcher stopped the run because something had failed before."""
    return any(end.at[0] == stop.at[0] and end.at < stop.at and not end.exit.whole for end in case.bad_ends)


def _stop(case: Case) -> Verdict | None:
    stops = [hit for hit in case.found.hits if hit.signature.role == "stop"]
    for one in STOPS:
        if hits := [hit for hit in stops if hit.signature.id == one]:
            return Verdict(BY_ID[one], "high", hits)
    return None


def _symptom(case: Case) -> Verdict | None:
    """Ranks that waited, and nobody who says why."""
    hits = [hit for hit in _independent(_roots(case)) if hit.signature.role == "symptom"]
    if waited := [hit for hit in case.found.hits if hit.signature.id in WAITED and not (hit.raised and hit.raised.ignored)]:
        # torchrun tells nobody's good end, but it tells which ranks it had to end: where none, the others were gone.
        gone = case.found.well or set(case.silent() if _nobody_was_left(case) and not hits else ())
        if gone and not case.ended_well:
            return Verdict(BY_ID["DESYNC-EARLY-EXIT"], "medium", waited, min(gone) if min(gone) >= 0 else None)
    if not hits:
        return None
    first = min(hits, key=case.order)
    late = case.behind()
    rank = late[0] if late and len(late) < max(len(case.ranks), 2) else None
    signature = first.signature
    if signature.id == "NCCL-WATCHDOG" and case.found.preparing:
        return Verdict(BY_ID["TOKENISE-TIMEOUT"], "medium", hits, 0)
    if signature.id == "GLOO-TIMEOUT" and not late:
        signature = BY_ID["HANG-DESYNC"]
    return Verdict(signature, "medium", [hit for hit in hits if hit.signature is first.signature], rank)


def _nobody_was_left(case: Case) -> bool:
    return bool(case.found.agents and case.bad_ends) and not case.found.closing


def _left_early(case: Case) -> Verdict | None:
    """A rank ended by itself, without a word of why."""
    own = [end for end in case.bad_ends if end.exit.code > 0]
    wordless = [end for end in own if end.rank is not None and end.rank not in case.found.spoke]
    numbered = [end for end in own if end.exit.code not in (1, 126, 127, 255)]
    waited = [hit for hit in case.found.hits if hit.signature.id in WAITED]
    wordless.sort(key=lambda end: case.found.ended.get(end.rank or 0, 0.0))
    rank, certain = (wordless[0].rank, True) if wordless else case.suspect()
    if not (wordless or numbered or (waited and own and rank is not None)):
        return None
    hits = [Hit(BY_ID["EARLY-EXIT"], end.at, end.text, end.stream, end.rank) for end in wordless or numbered]
    return Verdict(BY_ID["EARLY-EXIT"], "medium" if hits and certain else "low", hits or waited, rank)


def _ended_by_signal(case: Case) -> Verdict | None:
    """The launcher, or every rank, ended by a signal that asks for the end; nobody says more."""
    asked = [end for end in case.found.ends if end.exit.code in (-1, -2, -15)]
    if any(end.exit.code not in (-1, -2) for end in case.bad_ends):
        asked = [end for end in asked if end.exit.local]  # torchrun's word for the one that ended by itself
    if not asked:
        return None
    end = asked[0]
    signature = BY_ID[SIGNAL_CAUSES[-end.exit.code]]
    return Verdict(signature, "medium", [Hit(signature, end.at, end.text, end.stream)])


def _hint(case: Case) -> Verdict | None:
    """The log ends while an op was being built."""
    if case.failed:
        return None
    hits = [hit for hit in case.found.hits if hit.signature.id == "JIT-LOCK" and hit.at > case.found.loaded]
    last = [line for lines in case.found.tails.values() for line in lines[-2:]]
    if hits and any(hit.text.strip() in line for hit in hits for line in last):
        return Verdict(BY_ID["JIT-LOCK"], "low", hits)
    return None


def _quiet(case: Case) -> Verdict | None:
    """The run went on, but not as it was meant."""
    if case.failed and not case.ended_well:
        return None
    found = case.found
    if found.orphaned is not None:
        hit = Hit(
            BY_ID["ZOMBIE"], found.orphaned, "the launcher of the node has lost its parent: deepspeed.launcher.launch with PPID 1", ""
        )
        return Verdict(BY_ID["ZOMBIE"], "medium", [hit])
    notes = [hit for hit in found.hits if hit.signature.id == "NOHOSTFILE-NOTE"]
    if notes and found.several_nodes:
        return Verdict(BY_ID["HOSTFILE-IGNORED"], "medium", notes)
    for hit in found.hits:
        if hit.signature.role == "quiet":
            same = [other for other in found.hits if other.signature is hit.signature]
            if hit.signature.id != "NAN" or len(same) >= NAN_REPORTS:
                return Verdict(hit.signature, "high" if hit.signature.sure else "medium", same)
    return None


def _nothing(case: Case) -> Verdict | None:
    """Nothing failed as far as the text goes."""
    if case.failed or not case.found.lines or any(hit.signature.role == "cascade" and not _is_noise(hit) for hit in case.found.hits):
        return None
    if not any(line.strip() for lines in case.found.tails.values() for line in lines):
        return None
    noise = [hit for hit in case.found.hits if _is_noise(hit)]
    return Verdict(BY_ID["BENIGN-NOISE" if noise else "SUCCESS"], "medium" if noise else "low", noise)


def _is_noise(hit: Hit) -> bool:
    """Something that looks like an error and came at the exit of a process."""
    return hit.raised is not None and hit.raised.ignored


def _answer(signature: Signature) -> str:
    return signature.answer or signature.id
