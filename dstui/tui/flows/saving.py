"""Save the Plan, and leave without losing anything. What somebody else has written is not replaced unasked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual.app import App

from dstui.base.files import FileProblem, is_file, is_there, typed_path
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.kit.notes import say
from dstui.tui.session.session import Session

Then = Callable[[], object]
"""What comes after something that may have to be asked before."""


class NotSaved(Ask):
    """Whether to leave, and what becomes of the edits."""

    def __init__(self) -> None:
        answers = [Answer("s", "save and leave", "save"), Answer("d", "discard the edits and leave", "discard"), Answer("c", "stay", None)]
        super().__init__("Not saved", "The Plan has edits that are not saved.", answers)


class Saving:
    """From the wish to save to a file on disk, and from the wish to leave to the end."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def save(self) -> None:
        """Save the Plan; asks for a name where it has none, and before it replaces what somebody else wrote."""
        self._save_and(_nothing)

    def leave(self) -> None:
        """Leave; asks where edits would be lost. A job that runs goes on."""
        if self._session.state.saved:
            self._app.exit(0)
        elif not isinstance(self._app.screen, NotSaved):
            self._app.push_screen(NotSaved(), self._leave)

    def _leave(self, how: str | None) -> None:
        if how == "discard":
            self._app.exit(0)
        elif how == "save":
            self._save_and(partial(self._app.exit, 0))

    def _save_and(self, then: Then) -> None:
        path, moved = self._session.path, self._session.moved_on_disk()
        if path is None:
            self._ask_where(then)
        elif moved:
            answers = [Answer("r", "replace it with what is here", True)] if is_file(path) else []
            answers.append(Answer("o", "save under another name", False))
            self._app.push_screen(Ask("Changed on disk", moved, answers), partial(self._resolve, path, then))
        else:
            self._save(path, then, replace_other=True)

    def _resolve(self, path: Path, then: Then, replace: bool | None) -> None:
        if replace:
            self._save(path, then, replace_other=True)
        elif replace is False:
            self._ask_where(then)

    def _ask_where(self, then: Then) -> None:
        name = f"{self._session.state.plan.name or 'plan'}.yaml"
        prompt = Prompt("Save the Plan as", "A path, relative to the current folder:", name)
        self._app.push_screen(prompt, partial(self._save_as, then))

    def _save_as(self, then: Then, name: str | None) -> None:
        if not name:
            return
        path = typed_path(name)
        if is_there(path) and path != self._session.path:
            answers = [Answer("r", "replace it", True), Answer("n", "no, another name", False)]
            self._app.push_screen(Ask("Exists already", f"{path} exists.", answers), partial(self._resolve, path, then))
        else:
            self._save(path, then, replace_other=False)

    def _save(self, path: Path, then: Then, *, replace_other: bool) -> None:
        try:
            self._session.save(path, replace_other=replace_other)
        except FileProblem as error:
            say(self._app, str(error), "error")
            return
        say(self._app, f"Saved {path}")
        self._session.note(f"saved    {path}")
        then()


def _nothing() -> None:
    """Nothing more."""
