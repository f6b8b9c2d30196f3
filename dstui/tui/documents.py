"""What the app does with files: start from one, save the Plan, write what follows from it, copy, and leave without losing anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from dstui.files import FileProblem, is_file, is_folder, is_there, typed_path, write_atomic
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.forms.fields import help_for, shown, typed
from dstui.tui.session.edits import UNSET
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.render.artifacts import Artifact
    from dstui.tui.forms.steps import Step


Then = Callable[[], object]
"""What comes after something that may have to be asked before."""


class NotSaved(Ask):
    """Whether to leave, and what becomes of the edits."""

    def __init__(self) -> None:
        answers = [Answer("s", "save and leave", "save"), Answer("d", "discard the edits and leave", "discard"), Answer("c", "stay", None)]
        super().__init__("Not saved", "The Plan has edits that are not saved.", answers)


class Documents(App[int]):
    """The part of the app that concerns files."""

    store: Session
    step: Step
    done: list[str]
    """The receipt: what was written and started."""

    def say(self, text: str, severity: Any = "information") -> None:
        """A note at the corner for a few seconds."""
        self.notify(text, severity=severity, markup=False)

    # Saving

    def action_save(self) -> None:
        """Save the Plan; asks for a name where it has none, and before it replaces what somebody else wrote."""
        self._save_and(_nothing)

    def _save_and(self, then: Then) -> None:
        """Save it, and then, once it is saved, do this."""
        path, moved = self.store.path, self.store.moved_on_disk()
        if path is None:
            self._ask_where(then)
        elif moved:
            answers = [Answer("r", "replace it with what is here", True)] if is_file(path) else []
            answers.append(Answer("o", "save under another name", False))
            self.push_screen(Ask("Changed on disk", moved, answers), partial(self._resolve, path, then))
        else:
            self._save(path, then, replace_other=True)

    def _resolve(self, path: Path, then: Then, replace: bool | None) -> None:
        if replace:
            self._save(path, then, replace_other=True)
        elif replace is False:
            self._ask_where(then)

    def _ask_where(self, then: Then) -> None:
        name = f"{self.store.state.plan.name or 'plan'}.yaml"
        prompt = Prompt("Save the Plan as", "A path, relative to the current folder:", name)
        self.push_screen(prompt, partial(self._save_as, then))

    def _save_as(self, then: Then, name: str | None) -> None:
        if not name:
            return
        path = typed_path(name)
        if is_there(path) and path != self.store.path:
            answers = [Answer("r", "replace it", True), Answer("n", "no, another name", False)]
            self.push_screen(Ask("Exists already", f"{path} exists.", answers), partial(self._resolve, path, then))
        else:
            self._save(path, then, replace_other=False)

    def _save(self, path: Path, then: Then, *, replace_other: bool) -> None:
        try:
            self.store.save(path, replace_other=replace_other)
        except FileProblem as error:
            self.say(str(error), "error")
            return
        self.say(f"Saved {path}")
        self._note(f"saved    {path}")
        then()

    def _note(self, line: str) -> None:
        if line not in self.done:
            self.done.append(line)

    # Writing what follows from the Plan

    def action_write(self) -> None:
        """Write ds_config.json, the command and so on to a folder."""
        text = "Folder for ds_config.json and the other files (it must exist):"
        self.push_screen(Prompt("Write the files", text, self.store.state.plan.base, _no_folder), self._write_to)

    def _write_to(self, folder: str | None) -> None:
        if not folder:
            return
        from dstui.files import state_on_disk
        from dstui.render.artifacts import artifacts
        from dstui.render.launch import RenderError

        place, state = typed_path(folder), self.store.state
        try:
            files = {place / a.name: a for a in artifacts(state.launch_target())}
        except RenderError as error:
            self.say(f"Nothing is written: {error}", "error")
            return
        changed = [path.name for path, artifact in files.items() if state_on_disk(path, artifact.text) == "changed"]
        if changed:
            answers = [Answer("r", "replace", files), Answer("n", "no, leave everything", None)]
            self.push_screen(Ask("Replace?", f"In {place} these have other content: {', '.join(changed)}.", answers), self._write)
        else:
            self._write(files)

    def _write(self, files: dict[Path, Artifact] | None) -> None:
        if files is None:
            return
        try:
            for path, artifact in files.items():
                write_atomic(path, artifact.text, replace=True, executable=artifact.executable)
                self._note(f"written  {path}")
        except FileProblem as error:
            self.say(str(error), "error")
        else:
            self.say(f"Written to {next(iter(files)).parent}: {', '.join(p.name for p in files)}")
        self.refresh_lookups()

    def copy(self, text: str, what: str) -> None:
        """To the terminal's clipboard, and to a file, since a terminal may drop it without a word."""
        from platformdirs import user_state_path

        self.copy_to_clipboard(text)
        try:
            place = user_state_path("dstui", ensure_exists=True) / "clipboard.txt"
            write_atomic(place, text, replace=True)
        except (FileProblem, OSError):
            self.say(f"Copied {what}. If nothing arrives: tmux needs `set -g set-clipboard on`.")
        else:
            self.say(f"Copied {what}; it is also in {place}")

    # Keys without a form

    def type_value(self, path: str) -> None:
        """Type the value of any key of the Plan, as YAML."""
        value = self.store.state.plan.get(path, UNSET)
        text = f"{path.removeprefix('deepspeed.')}\n{help_for(path)}\nA YAML value; empty takes the key out:"
        self.push_screen(Prompt("Set a key", text, typed(value), _no_yaml), partial(self._set_value, path))

    def _set_value(self, path: str, text: str | None) -> None:
        if text is None:
            return
        if self.store.edit((path, yaml_value(text) if text.strip() else UNSET)):
            self.say(f"{path.removeprefix('deepspeed.')}: {shown(self.store.state.plan.get(path, UNSET))}")
        else:
            self.say(self.store.state.refusal[1], "error")

    # Leaving

    def action_leave(self) -> None:
        """Leave; asks where edits would be lost. A job that runs goes on."""
        if self.store.state.saved:
            self.exit(0)
        elif not isinstance(self.screen, NotSaved):
            self.push_screen(NotSaved(), self._leave)

    async def action_quit(self) -> None:
        """Textual's own way out is no other."""
        self.action_leave()

    def _leave(self, how: str | None) -> None:
        if how == "discard":
            self.exit(0)
        elif how == "save":
            self._save_and(partial(self.exit, 0))

    def show_step(self, step: Step, path: str = "") -> None:
        """Go to a step; the app knows how."""
        raise NotImplementedError

    def refresh_lookups(self) -> None:
        """The files around the Plan may be others now; who looks knows how."""
        raise NotImplementedError


def _nothing() -> None:
    """Nothing more."""


def _no_folder(text: str) -> str:
    return "" if is_folder(typed_path(text)) else f"{text or 'That'} is no folder."


def yaml_value(text: str) -> Any:
    """What was typed, as YAML has it: 5e8 is a number, [1, 2] a list. DocumentError where it is none."""
    from dstui.plan.document import Document

    return Document(f"v: {text}").data["v"]


def _no_yaml(text: str) -> str:
    from dstui.plan.document import DocumentError

    try:
        yaml_value(text)
    except DocumentError as error:
        return error.message
    return ""
