"""A zip for a bug report: what was launched, what became of it, and the last lines of every rank, without secrets.

A job folder may be half-written, of another version, or still in use: what cannot be read is named in contents.txt, and the rest goes in.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from dstui import __version__
from dstui.files import FileProblem, is_folder, is_there, read_text, reason
from dstui.logs.log_file import LogFile
from dstui.regular import lies_in
from dstui.run.jobs.folder import JobFolder
from dstui.run.report.redact import mask, secrets, secrets_in
from dstui.text import escaped

LAST_LINES = 500
"""Lines of each log, from its end."""
TAILED = (".log", ".jsonl")
"""Files that grow: only their ends go in."""
MOST_KNOWN = 1000
"""Secrets beyond which logs are not asked for further ones: each costs a search of all the rest."""
MARKS = ("status.json", "launch.json", "plan.yaml")
"""One of these is in every job folder, however broken."""


def bundle(folder: JobFolder, to: Path, *, more: Mapping[str, str] | None = None, lines: int = LAST_LINES, replace: bool = False) -> Path:
    """Write the zip of a job folder; its path. `more`: further files for it, name -> text (a snapshot of the machine).

    Raises FileProblem where the folder is not a job's, where `to` exists and `replace` is not asked for, and where it cannot be written.
    """
    to = to / f"{folder.name}-bundle.zip" if is_folder(to) else to
    if is_there(to) and not replace:
        raise FileProblem(f"{to} exists: it is replaced only when asked (--force); -o names another file")
    try:
        is_job = any((folder.path / mark).is_file() for mark in MARKS)
    except OSError as error:
        raise FileProblem(f"{folder.path}: {reason(error)}") from None
    if not is_job:
        raise FileProblem(f"{folder.path} is not a job folder: it has none of {', '.join(MARKS)}")
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name}.")
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            _fill(archive, folder, {**_diagnosis(folder), **(more or {})}, lines)
        Path(temporary).replace(to)
    except OSError as error:
        raise FileProblem(f"{to}: {reason(error)}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return to


def _files(path: Path) -> list[Path]:
    """What lies in a job folder, as far as it is a job's: its own files, logs and records, of every attempt."""
    patterns = ("*", "logs/rank_*.log", "ranks/rank_*.json", "attempts/*/logs/rank_*.log", "attempts/*/ranks/rank_*.json")
    return sorted(found for pattern in patterns for found in path.glob(pattern) if found.is_file())


def _diagnosis(folder: JobFolder) -> dict[str, str]:
    """Why the job ended, as a file; what goes wrong in finding that out is part of the report."""
    if not folder.has_ended:
        return {}
    try:
        from dstui.run.diagnosis import diagnose_job

        return {"diagnosis.json": json.dumps(diagnose_job(folder).as_json(), indent=1, ensure_ascii=False) + "\n"}
    except Exception as error:  # the folder may be anybody's, and it is for reports of bugs, this one among them
        return {"diagnosis.txt": f"No diagnosis: {type(error).__name__}: {error}\n"}


def _fill(archive: zipfile.ZipFile, folder: JobFolder, more: Mapping[str, str], lines: int) -> None:
    files = {str(path.relative_to(folder.path)): path for path in _files(folder.path)}
    known = secrets(os.environ).union(*map(secrets_in, more.values()))
    for path in files.values():  # what is named in one place stands in others without its name
        found = secrets_in(_read(path, folder, lines)[0], prose=path.suffix in TAILED)
        known |= found if path.suffix not in TAILED or len(known) < MOST_KNOWN else set()
    contents = [f"dstui {__version__}: {folder.path}, secrets masked, of each log the last {lines} lines", ""]
    for name, path in files.items():  # one after another: the logs of a thousand ranks are not held at once
        text, problem = _read(path, folder, lines)
        if problem:
            contents.append(f"{name} is left out: {problem}")
        else:
            archive.writestr(escaped(f"{folder.name}/{name}"), mask(text, known).encode("utf-8", "backslashreplace"))
    for name, text in {**more, "contents.txt": "\n".join(contents) + "\n"}.items():
        archive.writestr(escaped(f"{folder.name}/{name}"), mask(text, known).encode("utf-8", "backslashreplace"))


def _read(path: Path, folder: JobFolder, lines: int) -> tuple[str, str]:
    """A file's text, of what grows the last lines, safe to show; and why there is none."""
    try:
        if not lies_in(path, folder.path):  # which says why not, where it cannot be read
            return "", "it is a link to what lies elsewhere"
        if path.suffix not in TAILED:
            return read_text(path), ""
    except FileProblem as problem:
        return "", str(problem)
    except OSError as error:
        return "", "it is a symbolic link" if error.errno == errno.ELOOP else reason(error)
    log = LogFile(path)
    try:
        return "".join(f"{line}\n" for line in log.tail(lines)), ""
    finally:
        log.close()
