"""Write a zip for a bug report: what was launched, how it ended, and the last lines of every rank, without secrets.

A job folder may be half-written, of another version, or in use: what cannot be read is listed in contents.txt, and the rest goes in.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from itertools import count as numbers
from pathlib import Path

from dstui import __version__
from dstui.base.files import FileProblem, check_replaceable, is_folder, is_there, read_text, reason
from dstui.base.regular_files import open_within, read_regular
from dstui.base.text import escaped, one_line
from dstui.bundle.redact import mask, secrets, secrets_in
from dstui.jobs.store.folder import JobFolder
from dstui.logs.decode import decode
from dstui.site.installed import installed_site

LAST_LINES = 500
"""Lines of each log, from its end."""
TAILED = (".log", ".jsonl")
"""Suffixes of files that grow: only their ends go in."""
RESERVE = ".reserve"
MAX_TAIL = 1 << 20
"""Bytes of each log that are read."""
NEWLINE = "\n"
MAX_KNOWN = 1000
"""After this many secrets, logs are not searched for further ones: each costs a search of everything else."""
MARKS = ("status.json", "launch.json", "plan.yaml")
"""Files of which every job folder has at least one, however broken."""


def bundle(folder: JobFolder, to: Path, *, more: Mapping[str, str] | None = None, lines: int = LAST_LINES, replace: bool = False) -> Path:
    """Write the zip of a job folder and return its path. `more`: further files, name -> text (a snapshot of the machine).

    Raises FileProblem if the folder is not a job's, if `to` exists and `replace` is false, and if it cannot be written.
    """
    to = to / f"{folder.name}-bundle.zip" if is_folder(to) else to
    check_replaceable(to)
    if is_there(to) and not replace:
        raise FileProblem(f"{to} exists: --force replaces it; -o names another file")
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
            real = JobFolder(folder.path.resolve())  # resolved once, so that nothing from elsewhere can take its place
            _fill(archive, real, {**_diagnosis(real), **_resolved(real), **site_files(), **(more or {})}, lines)
        Path(temporary).replace(to)
    except OSError as error:
        raise FileProblem(f"{to}: {reason(error)}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return to


def _files(path: Path) -> list[Path]:
    """Return the files of a job folder that belong to the job: its own files, logs and records, of every attempt."""
    kinds = ("logs/rank_*.log", "ranks/rank_*.json", "engine/rank_*.json*", "engine/rank_*.stacks")
    patterns = ("*", *kinds, *(f"attempts/*/{kind}" for kind in kinds))
    return sorted(found for pattern in patterns for found in path.glob(pattern) if found.is_file() and found.name != RESERVE)


def _resolved(folder: JobFolder) -> dict[str, str]:
    """Return, as a file, the configuration that DeepSpeed resolved, if the ranks reported it."""
    from dstui.jobs.engine.resolved import lines, read_resolved

    found = [line for engine in read_resolved(folder) for line in lines(engine)]
    return {"resolved.txt": "\n".join(found) + "\n"} if found else {}


def _diagnosis(folder: JobFolder) -> dict[str, str]:
    """Return, as a file, why the job ended. An error in the diagnosis becomes part of the report."""
    if not folder.has_ended:
        return {}
    try:
        from dstui.diagnosis import diagnose_job

        return {"diagnosis.json": json.dumps(diagnose_job(folder).as_json(), indent=1, ensure_ascii=False) + "\n"}
    except Exception as error:  # the folder may hold anything, and the report may be about this very error
        return {"diagnosis.txt": f"No diagnosis: {type(error).__name__}: {error}\n"}


def _fill(archive: zipfile.ZipFile, folder: JobFolder, more: Mapping[str, str], lines: int) -> None:
    files = {str(path.relative_to(folder.path)): path for path in _files(folder.path)}
    known = secrets(os.environ).union(*map(secrets_in, more.values()))
    for path in files.values():  # a secret with a name in one place appears elsewhere without it
        is_log = path.suffix in TAILED
        found = secrets_in(_read(path, folder, lines)[0], is_log=is_log)
        known |= found if not is_log or len(known) < MAX_KNOWN else set()
    contents = [f"dstui {__version__}: {folder.path}, secrets masked, of each log the last {lines} lines", ""]
    for name, path in files.items():  # one after another, so that the logs of a thousand ranks are not in memory at once
        text, problem = _read(path, folder, lines)
        if problem:
            contents.append(f"{name} is left out: {problem}")
        else:
            _add(archive, f"{folder.name}/{name}", text, known, is_log=path.suffix in TAILED)
    for name, text in {**more, "contents.txt": "".join(f"{one_line(line)}\n" for line in contents)}.items():
        _add(archive, f"{folder.name}/{name}", text, known, is_log=name == "contents.txt")


def _add(archive: zipfile.ZipFile, name: str, text: str, known: Iterable[str], *, is_log: bool) -> None:
    """Write one member, with secrets and terminal codes masked in its name and text."""
    name, text = "/".join(mask(part, known) for part in name.split("/")), escaped(text.replace("\r\n", NEWLINE))
    taken = archive.NameToInfo
    if escaped(name) in taken:  # two names that differ only in masked parts
        name = next(f"{name}-{number}" for number in numbers(2) if escaped(f"{name}-{number}") not in taken)
    archive.writestr(escaped(name), mask(text, known, is_log=is_log).encode("utf-8", "backslashreplace"))


def _read(path: Path, folder: JobFolder, lines: int) -> tuple[str, str]:
    """Return a file's text (of a growing file the last lines), and why there is none. One descriptor is checked and read."""
    try:
        fd = open_within(path, folder.path)
    except OSError as error:
        return "", "it is a symbolic link" if error.errno == errno.ELOOP else reason(error)
    if fd is None:
        return "", "it is a link to a file outside of the folder"
    if path.suffix in TAILED:
        return "".join(f"{line}\n" for line in _tail(fd, lines)), ""
    try:
        return read_text(path, fd), ""
    except FileProblem as problem:
        return "", str(problem)


def _tail(fd: int, count: int) -> list[str]:
    """Return the last lines of a file within its last MAX_TAIL bytes, and close it."""
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(fd).st_size
        file.seek(max(size - MAX_TAIL, 0))
        lines = file.read(MAX_TAIL).removesuffix(b"\n").split(b"\n") if size else []
    return [decode(line) for line in lines[max(len(lines) - count, 0) :]]


MAX_OF_SITE_FILE = 1 << 20
"""Bytes of each, from its end."""


def site_files() -> dict[str, str]:
    """Return the wanted files, name in the bundle -> text; or why one cannot be read."""
    site = installed_site().site
    return {f"site/{path.strip('/').replace('/', '_')}": _text(Path(path)) for path in (site.bundle if site is not None else ())}


def _text(path: Path) -> str:
    try:
        return read_regular(path, max(path.stat().st_size - MAX_OF_SITE_FILE, 0), MAX_OF_SITE_FILE).decode(errors="backslashreplace")
    except FileProblem as problem:
        return f"{problem}\n"
    except (OSError, ValueError) as error:
        return f"{path}: {reason(error)}\n"
