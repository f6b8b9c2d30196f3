"""Steps 8 and 9: review and run. They have panes of their own, not forms."""

from __future__ import annotations

import os

from dstui.tui.forms.steps.step import Step, always
from dstui.tui.session.state import State


def _ready(state: State) -> str:
    if not state.checked or state.counted("error"):
        return ""
    return "not from here" if nameless(state) else "ready"


def nameless(state: State) -> bool:
    """Return whether the hosts have no names and no SLURM allocation gives them: then only another program can start the ranks."""
    from dstui.render.launch import RenderError

    try:
        return "SLURM_JOB_ID" not in os.environ and not state.plan.cluster.submits and not state.launch_target().launch.named
    except RenderError:
        return False


_RUN_BADGES = {
    "running": "ok",
    "starting": "ok",
    "queued": "ok",
    "succeeded": "ok",
    "failed": "error",
    "lost": "error",
    "stopped": "warning",
}

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
