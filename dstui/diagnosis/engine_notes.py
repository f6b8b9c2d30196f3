"""Add the reports of the ranks' hooks to a diagnosis: phase and step in which each rank ended, and optimizers without DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.jobs.engine.lines import CheckpointCall, EngineMade, LoneOptimizer, read_all
from dstui.jobs.engine.now import RankNow, read_now
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import ranks_in_words

MOST_RANKS = 1024
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
    ranks = sorted(status.ranks if status else (), key=lambda rank: (rank != first, rank))[:MOST_RANKS]
    found = {rank: read_now(folder.engine(rank, attempt, "json")) for rank in ranks}
    return {rank: now for rank, now in found.items() if now is not None and now.phase != "start"}


def lone_optimizers(folder: JobFolder, attempt: int, ranks: Iterable[int]) -> Mapping[int, LoneOptimizer]:
    """Return the ranks in which an optimizer stepped without an engine."""
    found: dict[int, LoneOptimizer] = {}
    for rank in list(ranks)[:MOST_RANKS]:
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
