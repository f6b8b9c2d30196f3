"""Steps 8 and 9: what will be written and run, and the run itself. They have panes of their own, not forms."""

from __future__ import annotations

from dstui.tui.forms.steps.step import Step, always
from dstui.tui.session.state import State


def _ready(state: State) -> str:
    errors = state.counted("error")
    return "ready" if state.checked and not errors else ""


_RUN_BADGES = {"running": "ok", "starting": "ok", "succeeded": "ok", "failed": "error", "lost": "error", "stopped": "warning"}

REVIEW = Step(
    id="review",
    title="Review & launch",
    question="What will be written, and what will be run?",
    fields=always(),
    value=_ready,
    badge=lambda state: ("error" if state.counted("error") else "ok") if state.checked else "unknown",
    pane="review",
)
RUN = Step(
    id="run",
    title="Run",
    question="What the ranks are doing.",
    fields=always(),
    value=lambda state: state.run,
    badge=lambda state: _RUN_BADGES.get(state.run, "unknown"),
    pane="run",
)
