"""Questions before dstui runs a program that the user has not chosen: one from another user's job folder, or an unknown interpreter."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING

from textual.app import App
from textual.widgets import Input

from dstui.base.text import sanitise
from dstui.plan import Plan
from dstui.tui.dialogs.dialog import WIDTH, Answer, Ask
from dstui.tui.kit.text_row import BLANK, Row, Span, paragraph
from dstui.tui.kit.tools import in_thread
from dstui.tui.session.reference_check import ReferenceCheck
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.plan import Plan
    from dstui.render.target import Target


LINES = 3
"""The most lines of one fact."""


def question(why: list[str], target: Target) -> Ask:
    """Return the question with what would be started and where. The first answer, which Enter gives, is no."""
    answers = [Answer("n", "no, do not start", False), Answer("y", "start it: I know these programs", True)]
    return Ask("Start these programs?", "\n".join(why), answers, [*_details(target), BLANK])


def _details(target: Target) -> list[Row]:
    """Return what would be started: the Plan's own values, sanitised."""
    from dstui.render.launch import RenderError, interpreter

    plan = target.plan
    try:
        hosts = "nodes from SLURM" if plan.cluster.submits else ", ".join(target.launch.hosts)
    except RenderError:  # the launch reports it
        hosts = "unknown"
    workdir = plan.place(plan.job.workdir)
    script = plan.job.script or f"-m {plan.job.module}"
    facts = {"interpreter": interpreter(plan), "folder": workdir, "script": script, "arguments": shlex.join(plan.job.args), "hosts": hosts}
    facts |= {"environment": ", ".join(plan.cluster.env), "at the end": plan.run.on_end or ""}
    return [line for name, value in facts.items() if value for line in _fact(name, value)]


def _fact(name: str, value: str) -> list[Row]:
    """Return a value in a few lines: the answers below must stay visible, and Review shows the whole command."""
    lines = paragraph(sanitise(value), WIDTH - 3, first=(Span(f"{name:12} ", "dim"),))
    return lines if len(lines) <= LINES else [*lines[: LINES - 1], Row((Span(" " * 13), Span("… (Review shows all of it)", "dim")))]


AGAIN = 1.0
"""Seconds between two attempts to ask, while another question is open or text is typed."""


class Trusting:
    """Asks once per session about each interpreter."""

    def __init__(self, app: App[int], reference: ReferenceCheck | None, session: Session) -> None:
        """Create it. After a yes, `reference` is asked for its verdict again."""
        self._app, self._reference, self._session = app, reference, session
        self._asked_about: frozenset[str] = frozenset()

    def ask(self, plan: Plan) -> None:
        """Ask about the interpreter of this Plan, if no other question is open and nothing is being typed."""
        from dstui.documents.trusted_python import describe_interpreter
        from dstui.render.launch import interpreter

        python = interpreter(plan)
        if python in self._asked_about:
            return
        if isinstance(self._app.focused, Input) or len(self._app.screen_stack) > 1:
            self._app.set_timer(AGAIN, partial(self.ask, plan))
            return
        self._asked_about |= {python}
        known = f" {describe_interpreter(plan)}".rstrip()
        text = f"The Plan names its own interpreter for the ranks:\n{python}\n"
        text += "May dstui also run it for checks, so that its DeepSpeed checks the Plan? Otherwise dstui's own does."
        text += f"{known} A launch runs it too, after your consent."
        answers = [Answer("n", "no, use dstui's own", False), Answer("y", "yes, run it: I know this Plan", True)]
        self._app.push_screen(Ask("Another interpreter", text, answers), partial(self._answered, plan))

    def _answered(self, plan: Plan, yes: bool | None) -> None:
        if yes is not None:
            in_thread(self._app, partial(self._remember, plan, yes))

    def _remember(self, plan: Plan, yes: bool) -> None:
        from dstui.documents.trusted_python import remember

        remember(plan, yes)
        if yes and self._reference is not None:
            self._reference.ask(self._session.state)
