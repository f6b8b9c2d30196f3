"""Whether an interpreter that the Plan names may be run also while the user only looks: asked once, and remembered."""

from __future__ import annotations

from functools import partial

from textual.app import App
from textual.widgets import Input

from dstui.plan import Plan
from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.services.reference_check import ReferenceCheck
from dstui.tui.session.session import Session

AGAIN = 1.0
"""Seconds after which it is tried again to ask, where something else is asked or typed."""


class Trusting:
    """Asks about each interpreter once in a session."""

    def __init__(self, app: App[int], reference: ReferenceCheck | None, session: Session) -> None:
        """`reference` is asked again, once the user has said yes."""
        self._app, self._reference, self._session = app, reference, session
        self._asked_about: frozenset[str] = frozenset()

    def ask(self, plan: Plan) -> None:
        """Ask about the interpreter of this Plan, when nothing else is asked and nothing typed."""
        from dstui.documents.trusted_python import about
        from dstui.render.launch import interpreter

        python = interpreter(plan)
        if python in self._asked_about:
            return
        if isinstance(self._app.focused, Input) or len(self._app.screen_stack) > 1:
            self._app.set_timer(AGAIN, partial(self.ask, plan))
            return
        self._asked_about |= {python}
        known = f" {about(plan)}".rstrip()
        text = f"The Plan names an interpreter of its own for the ranks:\n{python}\n"
        text += "May dstui run it also while you only look, so that its DeepSpeed judges the Plan? Else dstui's own does."
        text += f"{known} A launch runs it too, and asks where you have not agreed."
        answers = [Answer("n", "no, dstui's own judges", False), Answer("y", "yes, run it: I know this Plan", True)]
        self._app.push_screen(Ask("Another interpreter", text, answers), partial(self._answered, plan))

    def _answered(self, plan: Plan, yes: bool | None) -> None:
        if yes is not None:
            in_thread(self._app, partial(self._remember, plan, yes))

    def _remember(self, plan: Plan, yes: bool) -> None:
        from dstui.documents.trusted_python import remember

        remember(plan, yes)
        if yes and self._reference is not None:
            self._reference.ask(self._session.state)
