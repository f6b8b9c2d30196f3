"""One model becomes several: what the present one and the new one are called, and what the new one does."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.app import App

from dstui.plan import PlanError
from dstui.plan.another_model import add_model, name_problem
from dstui.plan.load import MOST_MODELS
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.kit.notes import say
from dstui.tui.session.session import Session

TITLE = "Add a model"
ROLES = [
    Answer("t", "train it: it has an optimizer of its own", "train"),
    Answer("i", "inference only, as a teacher: stage 3, no optimizer", "inference"),
]


class AddingModels:
    """From a name to a Plan with one more model, as one step of undo."""

    def __init__(self, app: App[Any], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self) -> None:
        """Ask for the names, that of the present model first where it has none."""
        models = self._session.state.plan.models
        if len(models) >= MOST_MODELS:
            say(self._app, f"{MOST_MODELS} models are the most in one run.", "warning")
        elif models:
            self._ask_name("")
        else:
            text = "Its configuration becomes that of a model with a name, in a file of its own. The model that is here now is called:"
            self._app.push_screen(Prompt(TITLE, text, "student", lambda name: name_problem(name, {})), self._ask_name)

    def _ask_name(self, present: str | None) -> None:
        if present is None:
            return
        taken = dict.fromkeys((present, *self._session.state.plan.models))
        prompt = Prompt(TITLE, "The other one is called:", "" if "teacher" in taken else "teacher", lambda name: name_problem(name, taken))
        self._app.push_screen(prompt, partial(self._ask_role, present))

    def _ask_role(self, present: str, name: str | None) -> None:
        if name is not None:
            self._app.push_screen(Ask(TITLE, f"What is done with {name}?", ROLES), partial(self._add, present, name))

    def _add(self, present: str, name: str, role: str | None) -> None:
        if role is None:
            return
        try:
            self._session.replace(add_model(self._session.state.plan, name, role, present).text)
        except PlanError as error:
            say(self._app, str(error), "error")
            return
        self._session.select_model(name)
        say(self._app, f"{name} has its own configuration; O goes to the next model.")
