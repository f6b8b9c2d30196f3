"""The script of a failed job in the user's own editor, at the line that failed."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from textual.app import App

from dstui.base.files import is_file
from dstui.base.regular_files import read_regular
from dstui.jobs.store.folder import JobFolder
from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.flows.own_editor import run_editor
from dstui.tui.kit.tools import afterwards, say
from dstui.tui.run.diagnosis_pane import DiagnosisPane
from dstui.tui.run.watched_job import WatchedJob
from dstui.tui.session.messages import FilesChanged

TAIL = 256 * 1024
"""Bytes at the end of a log in which the failing frame is searched."""
FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9})\b')
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<")


class FailedScript:
    """Find the last frame in the user's own code, and open it."""

    def __init__(self, app: App[Any], why: DiagnosisPane) -> None:
        self._app, self._why = app, why

    def open(self, job: WatchedJob) -> None:
        """Open the script at the line that failed. Ask first if the job is another's, or the file is not in the job's folder."""
        if (diagnosis := self._why.diagnosis) is None:
            return
        said = (diagnosis.first_failing_rank, *(each.rank for each in diagnosis.evidence))
        ranks = list(dict.fromkeys(rank for rank in said if rank is not None))
        afterwards(self._app, partial(_find, job.folder, ranks, job.follower.attempt), partial(self._found, job.follower.notices.foreign))

    def _found(self, foreign: str, found: tuple[Path, int, bool] | None) -> None:
        if found is None:
            say(self._app, "The log of the rank that failed has no line of your script.", "warning")
            return
        path, line, own = found
        if own and not foreign:
            self._edit(path, line)
            return
        why = f"The job is {foreign}" if foreign else "It is not in the folder of the job"
        answers = [Answer("n", "no", False), Answer("y", "open it", True)]
        text = f"The log names {path}. {why}, and a log can name any file."
        self._app.push_screen(Ask("Open this file?", text, answers), lambda yes: self._edit(path, line) if yes else None)

    def _edit(self, path: Path, line: int) -> None:
        if run_editor(self._app, path, line):
            self._app.post_message(FilesChanged())


def _find(folder: JobFolder, ranks: list[int], attempt: int) -> tuple[Path, int, bool] | None:
    """Return file and line of the last frame in the user's code, and whether the file is in the working directory of the job."""
    launch = folder.read_launch()
    workdir = Path(launch.workdir if launch is not None else folder.path.parent)
    for rank in ranks or [0]:
        log = folder.log(rank, attempt)
        with suppress(OSError):
            text = read_regular(log, max(log.stat().st_size - TAIL, 0), TAIL).decode(errors="replace")
            for name, line in reversed(FRAME.findall(text)):
                path = Path(workdir, name)
                if not LIBRARY.search(name) and is_file(path):
                    return path, int(line), path.resolve().is_relative_to(workdir.resolve())
    return None
