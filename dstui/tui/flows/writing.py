"""Write ds_config.json, the command and so on to a folder, with a question before anything else is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App

from dstui.base.files import FileProblem, is_folder, typed_path, write_atomic
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.kit.notes import say
from dstui.tui.session.messages import FilesChanged
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.render.artifacts import Artifact


class Writing:
    """From a folder's name to the files in it. Posts FilesChanged."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self) -> None:
        """Ask for the folder."""
        text = "Folder for ds_config.json and the other files (it must exist):"
        self._app.push_screen(Prompt("Write the files", text, self._session.state.plan.base, no_folder), self._write_to)

    def _write_to(self, folder: str | None) -> None:
        if not folder:
            return
        from dstui.base.files import state_on_disk
        from dstui.render.artifacts import artifacts
        from dstui.render.launch import RenderError

        place, state = typed_path(folder), self._session.state
        try:
            files = {place / a.name: a for a in artifacts(state.launch_target())}
        except RenderError as error:
            say(self._app, f"Nothing is written: {error}", "error")
            return
        changed = [path.name for path, artifact in files.items() if state_on_disk(path, artifact.text) == "changed"]
        if changed:
            answers = [Answer("r", "replace", files), Answer("n", "no, leave everything", None)]
            self._app.push_screen(Ask("Replace?", f"In {place} these have other content: {', '.join(changed)}.", answers), self._write)
        else:
            self._write(files)

    def _write(self, files: dict[Path, Artifact] | None) -> None:
        if files is None:
            return
        try:
            for path, artifact in files.items():
                write_atomic(path, artifact.text, replace=True, executable=artifact.executable, private=artifact.private)
                self._session.note(f"written  {path}")
        except FileProblem as error:
            say(self._app, str(error), "error")
        else:
            say(self._app, f"Written to {next(iter(files)).parent}: {', '.join(p.name for p in files)}")
        self._app.post_message(FilesChanged())


def no_folder(text: str) -> str:
    """Why this is no folder, in a sentence; "" where it is one."""
    return "" if is_folder(typed_path(text)) else f"{text or 'That'} is no folder."
