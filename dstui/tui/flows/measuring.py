"""Measure the best plans here, from the dialog that ranks them: `dstui tune` gets the terminal, and the Plan that won is one undo step."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from dstui.base.files import FileProblem, read_text
from dstui.plan import PlanError
from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.kit.tools import say
from dstui.tui.session.session import Session

ABOUT = (
    "Each of the best plans runs for a few steps as its own job, one after the other, ten minutes at most. The script is started as "
    "it is, and its outputs go elsewhere. Ctrl-C stops; the next time it resumes."
)


class Measuring:
    """Ask, hand the terminal to `dstui tune`, and take the Plan that it found."""

    def __init__(self, app: App[Any], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self) -> None:
        """Ask whether the jobs may start."""
        self._session.settle()
        if self._session.path is None or not self._session.state.saved:
            say(self._app, "Save the Plan first (F2): what is measured is its file.", "warning")
            return
        answers = [Answer("n", "no", False), Answer("y", "start the short jobs", True)]
        self._app.push_screen(Ask("Measure the best plans here", ABOUT, answers), self._measure)

    def _measure(self, yes: bool | None) -> None:
        if not yes or self._session.path is None:
            return
        with tempfile.TemporaryDirectory(prefix="dstui-") as folder:
            won = Path(folder) / self._session.path.name
            command = [sys.executable, "-m", "dstui", "tune", str(self._session.path), "-o", str(won)]
            try:
                with self._app.suspend():
                    ended = subprocess.run(command, check=False).returncode
                    if sys.stdin.isatty():
                        input("Enter goes back to the Plan. ")
                self._take(won, ended)
            except SuspendNotSupported:
                say(self._app, "Measuring needs its own terminal: run dstui tune in a shell.", "warning")
            except (OSError, FileProblem, PlanError, EOFError, KeyboardInterrupt) as error:
                say(self._app, f"The Plan is as it was: {error}", "error")

    def _take(self, won: Path, ended: int) -> None:
        if not won.exists():
            say(self._app, f"Nothing was chosen: dstui tune ended with status {ended}. The Plan is as it was.", "warning")
        elif (text := read_text(won)) == self._session.state.plan.text:
            say(self._app, "The Plan is unchanged: no measured plan is clearly faster.")
        else:
            self._session.replace(text)
            say(self._app, "The Plan is now the fastest measured one (z undoes it).")
