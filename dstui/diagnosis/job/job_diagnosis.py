"""Diagnose a job folder: the ranks' own records and the Plan supplement the logs.

The records contain what no log shows reliably: how each rank ended, when, and whether the end was requested.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

from dstui.base.files import FileProblem, read_text
from dstui.base.regular_files import is_inside, open_regular
from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.diagnosis.engine import conclude
from dstui.diagnosis.findings import FACTS, Collected, Ended, Hit, Stop
from dstui.diagnosis.job.notes import unread_configuration
from dstui.diagnosis.job.supervisor_notes import KMSG, add_facts, killed_for_memory, size, with_silence
from dstui.diagnosis.reading.log_reader import collect_logs
from dstui.diagnosis.recognition.exits import Exit, translated
from dstui.diagnosis.reporting.answer import UNKNOWN
from dstui.diagnosis.signatures import BY_ID
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import KILLED, Ranks, read_record
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import UNWATCHED, current_status, ranks_of, requested_exit_code

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

IGNORED_KEY = "DS011"
"""The rule about a key that DeepSpeed silently ignores."""


def diagnose_job(folder: JobFolder) -> Diagnosis:
    """Diagnose why a job of dstui ended, from its folder alone. Raises FileProblem if its logs cannot be read."""
    status = current_status(folder)  # its supervisor may have been killed, and the job have ended since
    if status is not None and status.foreign:
        status = folder.read_status()
    ranks = ranks_of(folder, status)
    names = {str(folder.log(rank, ranks.attempt)): rank for rank in ranks.ranks}
    found = collect_logs(_logs(folder, ranks), names, folder.path.resolve())
    _add_records(found, folder, ranks, status)
    _add_lost_hosts(found, folder, ranks)
    _add_limits(found, folder, ranks)
    _add_kernels_word(found, ranks)
    add_facts(found, folder, ranks)
    _add_full_disk(found, folder, ranks, status)
    found.hits = [replace(hit, host=ranks.ranks[hit.rank].host) if hit.rank in ranks.ranks else hit for hit in found.hits]
    found.all_well = status is not None and status.state == "succeeded"
    _add_stop(found, folder, status)
    plan = _plan(folder)
    diagnosis = conclude(found.finished(), plan)
    if status and not status.final and diagnosis.kind in (None, "success", "benign"):
        nothing = replace(
            diagnosis,
            cause=None,
            kind=None,
            confidence="low",
            evidence=(),
            notes=(),
            could_be=(),
            title=f"Nothing has failed so far; {UNWATCHED}" if status.unwatched else "The job still runs, and nothing has failed so far",
        )
        return with_silence(nothing, folder, status)
    if (
        status and status.state in ("failed", "lost") and diagnosis.kind in (None, "success", "benign")
    ):  # the record knows what no log line says
        diagnosis = replace(diagnosis, cause=None, kind="failure", confidence="low", title=UNKNOWN)
    if diagnosis.kind in ("stop", "failure"):
        return with_silence(diagnosis, folder, status)
    if diagnosis.cause == "SUCCESS" and (unread := unread_configuration(folder)):
        return unread
    return _ignored_keys(diagnosis, plan) if diagnosis.cause == "SUCCESS" and plan else diagnosis


def _logs(folder: JobFolder, ranks: Ranks) -> list[Path]:
    paths = [folder.log(rank, ranks.attempt) for rank in sorted(ranks.ranks)]
    return [path for path in (*paths, folder.launcher_log) if _is_log(path, folder)]


def _is_log(path: Path, folder: JobFolder) -> bool:
    """Return whether a log of the job exists and is not a link."""
    with suppress(OSError):
        return is_inside(path, folder.path)
    return False


def _add_records(found: Collected, folder: JobFolder, ranks: Ranks, status: JobStatus | None) -> None:
    """Replace the launcher's reports of ranks' ends by their records, else by the job's status."""
    found.world = max(len(ranks.ranks), 1)
    found.spoke |= {number for number in ranks.ranks if not folder.log(number, ranks.attempt).is_file()}  # it is known who wrote each log
    reported = status.ranks if status else {}
    last_alive = _lost(folder)
    ends: list[Ended] = []
    for number, rank in ranks.ranks.items():
        code = rank.exit_code if rank.over or number not in reported else reported[number].exit_code
        if code is None:
            continue
        found.ended[number] = last_alive.get(number, rank.last_alive) if rank.state == "lost" else rank.ended or rank.last_alive
        if code == 0:
            found.well.add(number)
            continue
        found.files.append(str(folder.record(number, ranks.attempt)))
        place = (len(found.files) - 1, 1)
        text = f"rank {number} on {rank.host} ended with {_in_words(code)}{_sender(folder, number, ranks.attempt)}"
        ends.append(Ended(Exit(translated(code), number), place, place, text, "record:record", number, rank.host))
    if found.ended:
        found.ends = ends


def _add_lost_hosts(found: Collected, folder: JobFolder, ranks: Ranks) -> None:
    """Add the hosts for which the job was given up, each with its first rank."""
    lost = [(line, event) for line, event in folder.numbered_events() if event.get("event") == "host" and event.get("state") == "lost"]
    if not lost:
        return
    found.files.append(str(folder.events_file))
    for line, event in lost:
        host = event.get("host")
        first = min((number for number, rank in ranks.ranks.items() if rank.host == host), default=None)
        place = (len(found.files) - 1, line)
        found.lost_hosts.append(Hit(BY_ID["HOST-LOST"], place, str(event.get("text")), FACTS, first, host))


def _add_limits(found: Collected, folder: JobFolder, ranks: Ranks) -> None:
    """Add which limit of the process refused memory to a rank, as far as its shim has seen one."""
    for number in sorted({hit.rank for hit in found.hits if hit.signature.id == "ALLOC-REFUSED" and hit.rank in ranks.ranks}):
        path = folder.record(number, ranks.attempt)
        reported = [f"{size(most)} ({name})" for name, most in (read_record(path).get("limits") or {}).items()]
        if reported:
            found.files.append(str(path))
            text = f"each process of rank {number} may have {' and '.join(reported)} of memory, whatever the host has"
            found.hits.append(Hit(BY_ID["MEMORY-LIMIT"], (len(found.files) - 1, 1), text, FACTS, number))


def _add_full_disk(found: Collected, folder: JobFolder, ranks: Ranks, status: JobStatus | None) -> None:
    """Add a full disk that the supervisor saw. The ranks' own messages and ends may not have been written."""
    rank = ranks.first_failure
    if status and status.disk_full and (rank is not None or status.state == "failed"):
        found.files.append(str(folder.status_file))
        text = f"the supervisor saw that the disk of {status.disk_full} was full while the job ran"
        host = ranks.ranks[rank].host if rank is not None else None
        found.remarks.pop("CKPT-DISK", None)
        found.hits.append(Hit(BY_ID["CKPT-DISK"], (len(found.files) - 1, 1), text, FACTS, rank, host))


def _add_kernels_word(found: Collected, ranks: Ranks) -> None:
    """Add whether the kernel killed ranks on this host."""
    for number, rank in ranks.ranks.items():
        if rank.exit_code == KILLED and rank.pid and rank.host == os.uname().nodename and not ranks.unseen:
            line = killed_for_memory(rank.pid, found.ended[number])
            if line is not None:
                found.files.append(KMSG)
                found.hits.append(Hit(BY_ID["OOM-HOST"], (len(found.files) - 1, 1), line, "kernel", number, rank.host))


def _lost(folder: JobFolder) -> dict[int, float]:
    """Return when the supervisor found ranks gone that could not record their own end."""
    found: dict[int, float] = {}
    for _, event in folder.numbered_events():
        with suppress(KeyError, ValueError, TypeError):
            if event["state"] == "lost":
                found[int(event["rank"])] = float(event["t"])
    return found


def _in_words(code: int) -> str:
    """Format an exit status: `137 (SIGKILL)`."""
    number = translated(code)
    with suppress(ValueError):
        return f"{code} ({Signals(-number).name})" if number < 0 else str(code)
    return str(code)


def _sender(folder: JobFolder, number: int, attempt: int) -> str:
    """Return who sent a signal to the rank's shim, if the shim could see it."""
    heard = read_record(folder.record(number, attempt)).get("signal")
    return f"; its shim got {heard}" if isinstance(heard, str) else ""


def _add_stop(found: Collected, folder: JobFolder, status: JobStatus | None) -> None:
    """Add the request that ended the job, if there was one: a file, or the supervisor's note."""
    if status and status.final and status.state != "stopped":
        return  # the request came too late
    asked = requested_exit_code(folder)
    code = translated(asked if asked is not None else (status.exit_code if status else None) or 0)
    cause = "SIGHUP" if code == -1 else "CTRL-C"
    noted = [(line, event) for line, event in folder.numbered_events() if event.get("stops")]
    if noted and asked is None:
        line, event = noted[-1]
        found.files.append(str(folder.events_file))
        text = str(event.get("text"))
        cause = "SLURM-CANCEL" if text.startswith("SLURM job ") and "cancelled" in text else cause
        found.stop = Stop(cause, float(event.get("t", 0.0)), (len(found.files) - 1, line), text)
        return
    if asked is None and not (status and status.state == "stopped"):
        return
    at = None
    with suppress(OSError):
        at = folder.stop_file.stat().st_mtime
    request = folder.read_stop()
    who = ", ".join(str(request[name]) for name in ("by", "command") if request.get(name))
    found.files.append(str(folder.stop_file))
    text = f"a stop of the job was requested{f': process {who}' if who else ''}"
    found.stop = Stop(cause, at, (len(found.files) - 1, 1), text)


def _plan(folder: JobFolder) -> Plan | None:
    from dstui.plan import PlanError, load

    path = folder.path / "plan.yaml"
    with suppress(FileProblem, PlanError, OSError):
        return load(read_text(path, open_regular(path)), "plan.yaml", str(folder.path))
    return None


def _ignored_keys(diagnosis: Diagnosis, plan: Plan) -> Diagnosis:
    """Return a diagnosis for a successful run in which DeepSpeed ignored a key of its configuration."""
    from dstui.check import check_plan
    from dstui.render.target import Target

    typos = [finding for finding in check_plan(Target(plan)) if finding.code == IGNORED_KEY and finding.severity == "warning"]
    if not typos:
        return diagnosis
    signature = BY_ID["SILENT-TYPO"]
    return replace(
        diagnosis,
        cause=signature.id,
        kind="failure",
        confidence="high",
        title=f"{signature.title}: {', '.join(finding.path for finding in typos)}",
        why=signature.cause,
        confirm=signature.confirm,
        evidence=tuple(Evidence(plan.source, finding.line or 1, finding.message) for finding in typos),
        fixes=tuple(finding.fix for finding in typos if finding.fix),
    )
