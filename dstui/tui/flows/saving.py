"""Write files: the Plan, generated files, a screenshot. A file written by another program is only replaced after a question."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from dstui.base.files import FileProblem, is_file, is_folder, is_there, typed_path, write_atomic
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.kit.tools import afterwards, in_thread, say
from dstui.tui.session.messages import FilesChanged
from dstui.tui.session.session import Session
from dstui.tui.session.settings import setting

if TYPE_CHECKING:
    from dstui.documents.training_script import ChangedScript
    from dstui.render.artifacts import Artifact


Then = Callable[[], object]
"""The continuation after a possible question."""


class NotSaved(Ask):
    """The question before exiting with unsaved edits."""

    def __init__(self) -> None:
        answers = [Answer("s", "save and leave", "save"), Answer("d", "discard the edits and leave", "discard"), Answer("c", "stay", None)]
        super().__init__("Not saved", "The Plan has edits that are not saved.", answers)


class Saving:
    """Save the Plan, and exit without losing edits."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session
        self.keeps_edits = False
        """The session is left without having asked about its edits: they are kept as a draft."""
        self._busy = False
        self._next: Then | None = None
        """The action that was requested while the file was still being written."""

    def save(self) -> None:
        """Save the Plan. Asks for a name if it has none, and before replacing a file that another program changed."""
        self._save_and(_nothing)

    def save_as(self) -> None:
        """Save the Plan under a name that is asked for."""
        self._ask_where(_nothing)

    def leave(self) -> None:
        """Leave; asks where edits would be lost. A job that runs goes on."""
        if self._busy and self._next != self.leave:
            self._next = self.leave
        elif self._busy or self._session.state.saved or not setting("confirm_leave"):  # if asked for again: the disk may never answer
            self._leave_now()
        elif not isinstance(self._app.screen, NotSaved):
            self._app.push_screen(NotSaved(), self._leave)

    def _leave_now(self) -> None:
        self.keeps_edits = not self._session.state.saved
        self._app.exit(0)

    def _leave(self, how: str | None) -> None:
        if how == "discard":
            self._app.exit(0)
        elif how == "save":
            self._save_and(partial(self._app.exit, 0))

    def _save_and(self, then: Then) -> None:
        if self._busy:
            self._next = partial(self._save_and, then)
        elif self._session.path is None:
            self._ask_where(then)
        else:
            self._busy = True
            afterwards(self._app, self._session.moved_on_disk, partial(self._compared, self._session.path, then))

    def _compared(self, path: Path, then: Then, moved: str) -> None:
        self._busy = False
        if moved:
            then, self._next = _both(then, self._next), None  # what was requested meanwhile waits for the answer, and goes with it
            answers = [Answer("o", "save under another name", False)]
            answers += [Answer("r", "replace it with this Plan", True)] if is_file(path) else []
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
            answers = [Answer("n", "no, another name", False), Answer("r", "replace it", True)]
            self._app.push_screen(Ask("Exists already", f"{path} exists.", answers), partial(self._resolve, path, then))
        else:
            self._save(path, then, replace_other=False)

    def _save(self, path: Path, then: Then, *, replace_other: bool) -> None:
        self._busy, text = True, self._session.state.plan.text
        write = partial(_refusal, partial(write_atomic, path, text, replace=replace_other))
        afterwards(self._app, write, partial(self._saved, path, text, then))

    def _saved(self, path: Path, text: str, then: Then, refusal: str) -> None:
        self._busy = False
        further, self._next = self._next, None
        if refusal:
            say(self._app, refusal, "error")
        else:
            self._session.saved_as(path, text)
            say(self._app, f"Saved {path}")
            self._session.note(f"saved    {path}")
            then()
        if further is not None:
            further()


def _refusal(write: Callable[[], object]) -> str:
    """Write; return why that was not possible, "" where it was."""
    try:
        write()
    except FileProblem as error:
        return str(error)
    return ""


def _both(first: Then, second: Then | None) -> Then:
    """Return what does both, one after the other."""

    def both() -> None:
        first()
        if second is not None:
            second()

    return both


def _nothing() -> None:
    """Do nothing."""


class Writing:
    """Write the generated files to a folder. Posts FilesChanged."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self) -> None:
        """Ask for the folder."""
        text = "Folder for ds_config.json and the other files (it must exist):"
        self._app.push_screen(Prompt("Write the files", text, self._session.state.plan.base, folder_problem), self._write_to)

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

        def others() -> list[str]:
            return [path.name for path, artifact in files.items() if state_on_disk(path, artifact.text) == "changed"]

        afterwards(self._app, others, partial(self._ask_replace, place, files))

    def _ask_replace(self, place: Path, files: dict[Path, Artifact], changed: list[str]) -> None:
        if changed:
            answers = [Answer("n", "no, replace nothing", None), Answer("r", "replace", files)]
            self._app.push_screen(Ask("Replace?", f"In {place} these have other content: {', '.join(changed)}.", answers), self._write)
        else:
            self._write(files)

    def _write(self, files: dict[Path, Artifact] | None) -> None:
        if files is not None:
            afterwards(self._app, partial(_refusal, partial(_write_all, files)), partial(self._written, files))

    def _written(self, files: dict[Path, Artifact], refusal: str) -> None:
        if refusal:
            say(self._app, refusal, "error")
        else:
            for path in files:
                self._session.note(f"written  {path}")
            say(self._app, f"Written to {next(iter(files)).parent}: {', '.join(p.name for p in files)}")
        self._app.post_message(FilesChanged())

    def adapted_name(self) -> str:
        """Return the name that a copy of the script with DeepSpeed's lines would have; "" if there is no clear place for them."""
        from dstui.documents.training_script import changed_script

        changed = changed_script(self._session.state.plan)
        return changed.name if changed is not None and changed.text else ""

    def write_script(self) -> None:
        """Write a copy of the script with DeepSpeed's lines, and make it the Plan's script. The user's own script is not changed."""
        from dstui.base.files import state_on_disk
        from dstui.documents.training_script import changed_script

        plan = self._session.state.plan
        changed = changed_script(plan)
        if changed is None or not changed.text or plan.job.script is None:
            return
        script = Path(plan.job.script).with_name(changed.name)
        path = Path(plan.place(plan.job.workdir), script)
        write = partial(_refusal, partial(write_atomic, path, changed.text, replace=True))
        take = partial(afterwards, self._app, write, partial(self._take_script, path, str(script), changed))
        afterwards(self._app, partial(state_on_disk, path, changed.text), partial(self._ask_replace_script, path, take))

    def _ask_replace_script(self, path: Path, take: Callable[[], None], on_disk: str) -> None:
        if on_disk == "changed":
            answers = [Answer("n", "no, keep it", False), Answer("r", "replace it", True)]
            self._app.push_screen(Ask("Exists already", f"{path} has other content.", answers), lambda yes: take() if yes else None)
        else:
            take()

    def _take_script(self, path: Path, script: str, changed: ChangedScript, refusal: str) -> None:
        if refusal:
            say(self._app, refusal, "error")
            return
        self._session.note(f"written  {path}")
        self._session.edit(("job.script", script), *((f"deepspeed.{key}", value) for key, value in changed.needs.items()))
        left = [note for note in changed.notes if not any(key in note for key in changed.needs)]
        by_hand = f" By hand: {'; '.join(left)}" if left else ""
        say(self._app, f"The Plan trains {script} now.{by_hand}")
        self._app.post_message(FilesChanged())


def _write_all(files: dict[Path, Artifact]) -> None:
    for path, artifact in files.items():
        write_atomic(path, artifact.text, replace=True, executable=artifact.executable, private=artifact.private)


def folder_problem(text: str) -> str:
    """Return why a text names no folder that can be written to, or ""."""
    return "" if is_folder(typed_path(text)) else f"{text or 'That'} is not a folder."


NAME = "dstui-screenshot.svg"


def take_screenshot(app: App[Any], session: Session) -> None:
    """Save a screenshot to the current folder under a new name, and tell where."""
    in_thread(app, partial(_write, app, session, app.export_screenshot()))


def _write(app: App[Any], session: Session, picture: str) -> None:
    path = free_name(Path.cwd() / NAME)
    try:
        write_atomic(path, picture)
    except FileProblem as problem:
        app.call_later(say, app, str(problem), "error")
    else:
        app.call_later(session.note, f"written  {path}")
        app.call_later(say, app, f"The screen is in {path}.")


def free_name(path: Path) -> Path:
    """Return the path, with -2, -3 and so on appended if it exists."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(name for name in chain((path,), names) if not name.exists())
