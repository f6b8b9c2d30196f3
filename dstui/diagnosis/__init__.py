"""Diagnose why a run ended: signatures of failures as data, and an engine that separates causes from consequences.

    diagnose(["job.log", "node2.log"])     any logs: of any launcher, of one rank or of many
    diagnose(["dstui_runs/NAME"])          a job folder: its ranks' records and its Plan are used too
    report(diagnosis)                      the diagnosis as text

`engine` has the four stages, of which only the reading (`reading`, `job`) touches files. Imports are deferred, because the
tables compile 200 regular expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.diagnosis.diagnosis import Diagnosis, Evidence

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plan.plan import Plan

__all__ = ["Diagnosis", "Evidence", "diagnose", "diagnose_job", "report", "unread_configuration"]


def diagnose(paths: Iterable[Path | str], plan: Plan | None = None) -> Diagnosis:
    """Diagnose why a run ended. Raises FileProblem.

    `paths`: logs (also gzip), folders and zips of them, `-` for standard input, a job folder or its bundle. `plan`: the Plan of the run, if
    known, for fixes as edits of it; a job folder has its own.
    """
    from dstui.diagnosis.reading.packed import is_zip, unpacked

    given = list(paths)
    with ExitStack() as stack:
        opened = {str(path): stack.enter_context(unpacked(path)) for path in dict.fromkeys(given) if is_zip(path)}
        diagnosis = _diagnose([opened.get(str(path), path) for path in given], plan)
    for path, folder in opened.items():
        diagnosis = diagnosis.renamed(str(folder), path)
    return diagnosis


def _diagnose(given: list[Path | str], plan: Plan | None) -> Diagnosis:
    from dstui.diagnosis.engine import diagnose_logs
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.store.index import is_job

    if len(given) == 1 and is_job(JobFolder(given[0])):
        return diagnose_job(JobFolder(given[0]))
    return _with_site_note(diagnose_logs(given, plan))


def _with_site_note(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with the site's note on its cause."""
    from dstui.site.installed import site_note

    note = site_note(diagnosis.cause or "")
    return replace(diagnosis, notes=(f"At this site: {note}", *diagnosis.notes)) if note else diagnosis


def diagnose_job(folder: JobFolder) -> Diagnosis:
    """Diagnose why a job of dstui ended. Raises FileProblem if its logs cannot be read."""
    from dstui.diagnosis.job.job_diagnosis import diagnose_job as diagnose_folder
    from dstui.diagnosis.job.notes import with_phases

    return _with_site_note(with_phases(diagnose_folder(folder), folder))


def unread_configuration(folder: JobFolder) -> Diagnosis | None:
    """Return a diagnosis for a successful job in which no rank has read its configuration; None for other jobs. Reads no log."""
    from dstui.diagnosis.job.notes import unread_configuration as find_unread_configuration

    return find_unread_configuration(folder)


def report(diagnosis: Diagnosis, *, markdown: bool = False) -> str:
    """Return the diagnosis as text, for a terminal or as Markdown."""
    from dstui.diagnosis.reporting.wording import in_markdown, in_words

    return in_markdown(diagnosis) if markdown else in_words(diagnosis)
