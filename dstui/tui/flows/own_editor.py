"""Edit the Plan in the user's own editor, at the line of the field. The result is checked, and is one undo step.

The editor gets a copy: the Plan's file is only written when the Plan is saved, as after any other edit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from dstui.base.editor import editor_command
from dstui.base.files import FileProblem, read_text
from dstui.plan import PlanError
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.tools import lend_terminal, say
from dstui.tui.session.session import Session


def run_editor(app: App[Any], file: Path, line: int = 1) -> bool:
    """Hand the terminal to the editor until it ends. Return False, after a message, if that was impossible or the editor failed."""
    try:
        command = editor_command(os.environ, file, line)
        if not command:
            say(app, "No editor: set VISUAL or EDITOR to one, such as EDITOR=nano.", "warning")
            return False
        with lend_terminal(app):
            ended = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        say(app, "An editor needs its own terminal, which does not exist here.", "warning")
    except (OSError, ValueError) as error:
        say(app, f"The editor could not be started: {error}. It comes from VISUAL or EDITOR.", "error")
    else:
        if ended:
            say(app, f"{command[0]} ended with status {ended}: nothing was changed.", "warning")
        return not ended
    return False


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
            if run_editor(self._app, file, plan.line_of(path) or 1):
                self._take_back(file, plan.text)

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
            say(self._app, f"This is not a valid Plan: {where}{found.message}. The Plan is as it was; the text is in {kept}.", "error")
        except FileProblem as error:
            say(self._app, f"{error}. The Plan is as it was.", "error")
        else:
            say(self._app, f"The Plan is as you wrote it; {key_of('undo')} undoes it, {key_of('save')} saves it.")

    def _keep(self, file: Path) -> Path:
        """Save a refused text to a file that the next edit does not overwrite."""
        from platformdirs import user_state_path

        kept = user_state_path("dstui", ensure_exists=True) / f"refused-{file.name}"
        kept.unlink(missing_ok=True)
        shutil.copyfile(file, kept)
        kept.chmod(0o600)
        return kept
