"""Edit the Plan in the user's own editor, at the line of the field; the result is checked, and is one undo step.

The editor gets a copy: the Plan's file is written when the Plan is saved, as after any other edit.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from dstui.base.files import FileProblem, read_text
from dstui.plan import PlanError
from dstui.tui.kit.tools import say
from dstui.tui.session.session import Session

PLUS = ("vi", "vim", "nvim", "nano", "pico", "emacs", "emacsclient", "micro", "kak", "joe", "jed", "mg", "ne")
"""Editors that take a line as +LINE before the file;"""
COLON = {"hx": (), "helix": (), "subl": (), "code": ("--goto",), "codium": ("--goto",)}
"""and those that take it as FILE:LINE, with an option before it."""
USUAL = ("nano", "vim", "vi")
"""What is there where nothing is chosen."""


def editor_command(environment: Mapping[str, str], file: Path, line: int) -> list[str]:
    """Return the editor: $VISUAL, else $EDITOR, else a usual one; empty if there is none. Raises ValueError on an unclosed quote."""
    chosen = environment.get("VISUAL") or environment.get("EDITOR") or next(filter(shutil.which, USUAL), "")
    words = shlex.split(chosen)
    name = Path(words[0]).name if words else ""
    if name in PLUS:
        return [*words, f"+{line}", str(file)]
    if name in COLON:
        return [*words, *COLON[name], f"{file}:{line}"]
    return [*words, str(file)] if words else []


class OwnEditor:
    """Hand the terminal to the editor, and take over the edited text."""

    def __init__(self, app: App[Any], session: Session) -> None:
        self._app, self._session = app, session

    def open(self, path: str) -> None:
        """Edit the Plan, starting at the line of the field with this dotted path."""
        self._session.settle()
        plan = self._session.state.plan
        with tempfile.TemporaryDirectory(prefix="dstui-") as folder:
            file = Path(folder) / (self._session.path.name if self._session.path else "plan.yaml")
            file.write_text(plan.text, encoding="utf-8")
            if self._run(file, plan.line_of(path) or 1):
                self._take_back(file, plan.text)

    def _run(self, file: Path, line: int) -> bool:
        """Run the editor in the terminal. Returns False, after telling the user, if it could not run."""
        try:
            command = editor_command(os.environ, file, line)
            if not command:
                say(self._app, "No editor: set VISUAL or EDITOR to one, such as EDITOR=nano.", "warning")
                return False
            with self._app.suspend():
                ended = subprocess.run(command, check=False).returncode
        except SuspendNotSupported:
            say(self._app, "An editor needs a terminal of its own, which is not here.", "warning")
        except (OSError, ValueError) as error:
            say(self._app, f"The editor could not be started: {error}. It comes from VISUAL or EDITOR.", "error")
        else:
            if ended:
                say(self._app, f"{command[0]} ended with status {ended}: the Plan is as it was.", "warning")
            return not ended
        return False

    def _take_back(self, file: Path, before: str) -> None:
        try:
            text = read_text(file)
            if text == before:
                say(self._app, "Nothing was changed.")
                return
            self._session.replace(text)
        except PlanError as error:
            kept = self._keep(file)
            found = error.findings[0]
            where = f"line {found.line}: " if found.line else ""
            say(self._app, f"This is no Plan: {where}{found.message}. The Plan is as it was; the text is in {kept}.", "error")
        except FileProblem as error:
            say(self._app, f"{error}. The Plan is as it was.", "error")
        else:
            say(self._app, "The Plan is as you wrote it; z takes it back, F2 saves it.")

    def _keep(self, file: Path) -> Path:
        """Save a refused text to a file that the next edit does not overwrite."""
        from platformdirs import user_state_path

        kept = user_state_path("dstui", ensure_exists=True) / f"refused-{file.name}"
        kept.unlink(missing_ok=True)
        shutil.copyfile(file, kept)
        kept.chmod(0o600)
        return kept
