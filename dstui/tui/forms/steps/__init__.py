"""The steps of the checklist as data: the question, the summary and the keys of the Plan of each."""

from __future__ import annotations

from dstui.tui.forms.fields import Field
from dstui.tui.forms.steps.batch import BATCH
from dstui.tui.forms.steps.cluster import CLUSTER
from dstui.tui.forms.steps.job import JOB
from dstui.tui.forms.steps.machine import MACHINE
from dstui.tui.forms.steps.offload import OFFLOAD
from dstui.tui.forms.steps.precision import PRECISION
from dstui.tui.forms.steps.step import REVIEW, RUN, Step, split_model_path
from dstui.tui.forms.steps.zero import ZERO
from dstui.tui.session.state import State

__all__ = ["MACHINE", "STEPS", "Field", "Step", "badge", "field_of", "step_of"]

STEPS: tuple[Step, ...] = (MACHINE, JOB, ZERO, OFFLOAD, PRECISION, BATCH, CLUSTER, REVIEW, RUN)


def step_of(path: str) -> Step:
    """Return the step that edits this path: the one that owns its longest prefix; Machine for no path, else Review."""
    if not path:
        return MACHINE
    _, path = split_model_path(path)
    owners = [(len(own), step) for step in STEPS for own in step.owns if path == own or path.startswith(own + ".")]
    return max(owners, key=lambda pair: pair[0])[1] if owners else REVIEW


def field_of(path: str, state: State) -> tuple[Step, Field] | None:
    """Return the form field of this path or of its nearest parent; None if no form has one."""
    found = [
        ((len(own), own == field.path), step, field)
        for step in STEPS
        for field in step.fields(state)
        for own in (field.path, *field.owns)
        if path == own or path.startswith(own + ".")
    ]
    return max(found, key=lambda each: each[0])[1:] if found else None


def badge(step: Step, state: State) -> str:
    """Return the badge of a step: ok, warning, error, or unknown before the first check."""
    if step.badge:
        return step.badge(state)
    if not state.checked:
        return "unknown"
    severities = {f.severity for f in state.findings if step_of(f.path) is step}
    return "error" if "error" in severities else "warning" if "warning" in severities else "ok"
