"""Find out from the records of the user's own runs whether the same host or rank repeatedly failed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dstui.diagnosis.diagnosis import Diagnosis
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import is_job, known_runs
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import ranks_of

LATEST = 5
"""The number of latest failures that count: older ones were on other hosts."""
LEAST = 3
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
        if len(found) == LATEST:
            break
    return found[::-1]


def repeated(failures: list[FailedRun]) -> str:
    """Return who was first in most of the failures, as a sentence; "" if nobody was."""
    hosts = Counter(one.host for one in failures if one.several_hosts and one.host)
    ranks = Counter(one.rank for one in failures)
    named = [(count, host) for host, count in hosts.most_common(1)] or [(count, f"Rank {rank}") for rank, count in ranks.most_common(1)]
    if not named or named[0][0] < LEAST or 2 * named[0][0] <= len(failures):
        return ""
    count, who = named[0]
    return f"{who} was first in {count} of the last {len(failures)} failures here."


def with_history(diagnosis: Diagnosis, folder: JobFolder) -> Diagnosis:
    """Return the diagnosis of a failed run with a note about the host or rank that was first in earlier failures here."""
    if diagnosis.kind != "failure" or not is_job(folder):
        return diagnosis
    sentence = repeated(latest_failures((one.folder, one.folder.read_status()) for one in known_runs() if one.is_here))
    return replace(diagnosis, notes=(*diagnosis.notes, sentence)) if sentence else diagnosis
