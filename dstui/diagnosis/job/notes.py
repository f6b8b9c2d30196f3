"""Notes from a job's own records: phases of the ranks, an unread configuration, and hosts that failed before.

Every successful job is checked for an unread configuration, so this module loads nothing of the engine unless it has something to report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem
from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.jobs.engine.lines import CheckpointCall, EngineMade, LoneOptimizer, read_all
from dstui.jobs.engine.now import RankNow, read_now
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import is_job, known_runs
from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import ranks_of
from dstui.plan.finding import Fix

MAX_RANKS = 1024
"""Ranks whose phases are read."""
READ = 1 << 24
"""Bytes of a rank's lines that are searched for its checkpoints."""
ENDS = ("failure", "stop")


def with_phases(diagnosis: Diagnosis, folder: JobFolder) -> Diagnosis:
    """Add the phase and step in which the ranks ended, and a checkpoint that was being written."""
    if diagnosis.kind not in ENDS:
        return diagnosis
    attempt = (status.attempt if (status := folder.read_status()) else 1) or 1
    nows = phases(folder, attempt, diagnosis.first_failing_rank)
    if not nows:
        return diagnosis
    groups: dict[str, list[int]] = {}
    for rank, now in nows.items():
        groups.setdefault(str(now), []).append(rank)
    words = [f"{ranks_in_words(ranks)} {text}" for text, ranks in sorted(groups.items(), key=lambda group: len(group[1]))]
    notes = [f"By the engine: {'; '.join(words)}."]
    saving = [rank for rank, now in nows.items() if now.phase == "save"]
    if saving and (call := _last_save(folder, saving[0], attempt)) is not None:
        named = f"{call.folder or 'a checkpoint'}{f' ({call.tag})' if call.tag else ''}"
        notes.append(f"{ranks_in_words(saving)} ended while saving {named}: that checkpoint is not complete.")
    return replace(diagnosis, notes=(*diagnosis.notes, *notes))


def phases(folder: JobFolder, attempt: int, first: int | None) -> dict[int, RankNow]:
    """Return the last phase of each rank, the first failing rank before the others."""
    status = folder.read_status()
    ranks = sorted(status.ranks if status else (), key=lambda rank: (rank != first, rank))[:MAX_RANKS]
    found = {rank: read_now(folder.engine(rank, attempt, "json")) for rank in ranks}
    return {rank: now for rank, now in found.items() if now is not None and now.phase != "start"}


def lone_optimizers(folder: JobFolder, attempt: int, ranks: Iterable[int]) -> Mapping[int, LoneOptimizer]:
    """Return the ranks in which an optimizer stepped without an engine."""
    found: dict[int, LoneOptimizer] = {}
    for rank in list(ranks)[:MAX_RANKS]:
        reports = list(read_all(folder.engine(rank, attempt), 1 << 16))
        if any(isinstance(report, EngineMade) for report in reports):
            return {}
        if (alone := next((report for report in reports if isinstance(report, LoneOptimizer)), None)) is not None:
            found[rank] = alone
    return found


def with_lone_optimizers(diagnosis: Diagnosis, folder: JobFolder) -> Diagnosis:
    """Add to a diagnosis of an unread configuration that the ranks trained without DeepSpeed, and where."""
    from dstui.jobs.watch.engine_notices import lone_sentence

    status = folder.read_status()
    attempt = status.attempt if status else 1
    alone = lone_optimizers(folder, attempt, sorted(status.ranks) if status else ())
    if not alone:
        return diagnosis
    rank, _ = next(iter(alone.items()))
    shown = Evidence(str(folder.engine(rank, attempt)), 2, lone_sentence(list(alone.values())), rank)
    return replace(diagnosis, evidence=(*diagnosis.evidence, shown))


def _last_save(folder: JobFolder, rank: int, attempt: int) -> CheckpointCall | None:
    saves = [r for r in read_all(folder.engine(rank, attempt), READ) if isinstance(r, CheckpointCall) and r.kind == "save"]
    return saves[-1] if saves and saves[-1].state == "begun" else None


HANDS_OVER = ("PL001", "PL023")
"""The rules that report that nothing passes the configuration to the script."""


def unread_configuration(folder: JobFolder) -> Diagnosis | None:
    """Return a diagnosis for a successful job in which no rank has read its DeepSpeed configuration; None for other jobs."""
    ends = [(line, event) for line, event in folder.numbered_events() if event.get("event") == "exit"]
    if not ends or ends[-1][1].get("state") != "succeeded" or ends[-1][1].get("config_read") is not False:
        return None
    from dstui.base.files import was_read
    from dstui.check import PlanFacts, check_plan
    from dstui.documents.training_script import script_facts_of
    from dstui.jobs.store.plan_diff import plan_of
    from dstui.plan import PlanError
    from dstui.render.target import Target

    fixes: list[Fix] = []
    with suppress(FileProblem, PlanError):
        plan = plan_of(folder)
        if not any(plan.configurations.values()):
            return None
        fixes = [f.fix for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan))) if f.code in HANDS_OVER and f.fix]
    from dstui.diagnosis.signatures import BY_ID  # loads all tables: only if there is something to report

    signature = BY_ID["CONFIG-UNREAD"]
    unread = next((path for path in folder.ds_configs if was_read(path) is False), folder.ds_config)
    shown = Evidence(str(folder.events_file), ends[-1][0], f"{unread.name} was never opened while the job ran")
    fixes += [Fix(way.text) for way in signature.all_remedies()]
    diagnosis = Diagnosis(
        signature.id, "failure", "high", signature.title, signature.cause, (shown,), confirm=signature.confirm, fixes=tuple(fixes)
    )
    return with_lone_optimizers(diagnosis, folder)


LATEST_FAILURES = 5
"""The number of latest failures that count: older ones were on other hosts."""
LEAST_FAILURES = 3
"""The smallest number of failures with the same first host or rank that is worth a remark."""
FAILED = frozenset({"failed", "lost"})


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The host and rank that failed first in one run."""

    folder: JobFolder
    rank: int
    host: str | None
    several_hosts: bool


def failure_of(folder: JobFolder, status: JobStatus | None) -> FailedRun | None:
    """Return who failed first in a run; None if it did not fail, or its records do not tell."""
    if status is None or status.state not in FAILED:
        return None
    ranks = ranks_of(folder, status)
    first = ranks.first_failure
    if first is None:
        return None
    hosts = {rank.host for rank in ranks.ranks.values()}
    return FailedRun(folder, first, ranks.ranks[first].host, several_hosts=len(hosts) > 1)


def latest_failures(runs: Iterable[tuple[JobFolder, JobStatus | None]]) -> list[FailedRun]:
    """Return the latest failures of runs that are given oldest first."""
    found: list[FailedRun] = []
    for folder, status in reversed(list(runs)):
        if (failure := failure_of(folder, status)) is not None:
            found.append(failure)
        if len(found) == LATEST_FAILURES:
            break
    return found[::-1]


def repeated(failures: list[FailedRun]) -> str:
    """Return who was first in most of the failures, as a sentence; "" if nobody was."""
    hosts = Counter(one.host for one in failures if one.several_hosts and one.host)
    ranks = Counter(one.rank for one in failures)
    named = [(count, host) for host, count in hosts.most_common(1)] or [(count, f"Rank {rank}") for rank, count in ranks.most_common(1)]
    if not named or named[0][0] < LEAST_FAILURES or 2 * named[0][0] <= len(failures):
        return ""
    count, who = named[0]
    return f"{who} was first in {count} of the last {len(failures)} failures here."


def with_history(diagnosis: Diagnosis, folder: JobFolder) -> Diagnosis:
    """Return the diagnosis of a failed run with a note about the host or rank that was first in earlier failures here."""
    if diagnosis.kind != "failure" or not is_job(folder):
        return diagnosis
    sentence = repeated(latest_failures((one.folder, one.folder.read_status()) for one in known_runs() if one.is_here))
    return replace(diagnosis, notes=(*diagnosis.notes, sentence)) if sentence else diagnosis
