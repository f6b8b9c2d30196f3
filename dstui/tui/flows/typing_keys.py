"""The value of a key that no form has, typed as YAML."""

from __future__ import annotations

from functools import partial

from textual.app import App

from dstui.tui.dialogs.dialog import Prompt
from dstui.tui.forms.fields import help_for, shown, typed
from dstui.tui.forms.yaml_value import no_yaml, yaml_value
from dstui.tui.kit.notes import say
from dstui.tui.session.edits import UNSET
from dstui.tui.session.session import Session


class TypingKeys:
    """Asks for the value of any key of the Plan, and writes it."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self, path: str) -> None:
        """Type the value at this dotted path."""
        value = self._session.state.plan.get(path, UNSET)
        text = f"{path.removeprefix('deepspeed.')}\n{help_for(path)}\nA YAML value; empty takes the key out:"
        self._app.push_screen(Prompt("Set a key", text, typed(value), no_yaml), partial(self._write, path))

    def _write(self, path: str, text: str | None) -> None:
        if text is None:
            return
        if self._session.edit((path, yaml_value(text) if text.strip() else UNSET)):
            say(self._app, f"{path.removeprefix('deepspeed.')}: {shown(self._session.state.plan.get(path, UNSET))}")
        else:
            say(self._app, self._session.state.refusal[1], "error")
