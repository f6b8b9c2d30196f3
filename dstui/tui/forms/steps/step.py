"""The type of a step, the steps Review and Run, and fields that several steps share: the choice of the model, and "auto" as an option."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

from dstui.base.dataclass import dataclass
from dstui.check.auto_values import FILLED
from dstui.plan.finding import Finding
from dstui.tui.forms.fields import Field, Option
from dstui.tui.kit.text_row import Row
from dstui.tui.session.state import Edit, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its question, its fields, and the value that the checklist shows for it."""

    id: str
    title: str
    question: str = ""
    fields: Callable[[State], tuple[Field, ...]]
    owns: tuple[str, ...] = ()
    """Dotted paths whose findings count for this step's badge, including everything below them."""
    value: Callable[[State], str]
    badge: Callable[[State], str] | None = None
    """Returns ok, warning, error or unknown, if the badge is not simply the most severe finding."""
    below: Callable[[State, Sequence[Finding], int], list[Row]] | None = None
    """Returns informative rows below the fields, from the findings of this step and a width in cells."""
    wide: bool = False
    """True if it also takes the space of preview and checks."""
    pane: Literal["form", "review", "run"] = "form"


def always(*fields: Field) -> Callable[[State], tuple[Field, ...]]:
    """Return a function that returns these fields for every state."""
    return lambda _state: fields


ROLES = (
    Option(value="train", label="train", says="it has an optimizer"),
    Option(value="inference", label="inference", says="inference only: stage 3, no optimizer"),
)


def model_choice(state: State) -> tuple[Field, ...]:
    """Return the choice of the model; empty if the run has one only."""
    plan = state.plan
    if not plan.models:
        return ()
    options = [Option(value=name, label=name, says=one.role) for name, one in plan.models.items()]
    if "" in plan.configurations:
        options.append(Option(value="", label="deepspeed", says="of no model"))
    return (
        Field(
            path="models",
            label="Model",
            kind="choice",
            options=tuple(options),
            selects_model=True,
            read=lambda state: state.plan.focus,
            says=lambda _state: "O: the next one",
            help=lambda _state: (
                "The forms, the preview and the keys are about this model's configuration. Choosing another changes nothing."
            ),
        ),
    )


def role(state: State) -> tuple[Field, ...]:
    """Return the role of the model in focus."""
    if not state.plan.focus:
        return ()
    return (Field(path=f"models.{state.plan.focus}.role", label="Its role", kind="choice", options=ROLES, default="train"),)


def split_model_path(path: str) -> tuple[str, str]:
    """Return the model and the path in its forms that a path of the Plan stands for: `models.a.deepspeed.x`."""
    parts = path.split(".", 2)
    if len(parts) == 3 and parts[0] == "models" and parts[2].partition(".")[0] in ("deepspeed", "model"):
        return parts[1], parts[2]
    return "", path


AUTO: Final = "auto"
DROPPED = "DeepSpeed ignores it"


def with_auto(field: Field, state: State, edits: tuple[Edit, ...] | None = None) -> Field:
    """Return a choice with "auto" as its last option, if it is allowed."""
    words = FILLED[state.plan.job.integration].get(field.path.removeprefix("deepspeed."))
    if words is None and field.value(state) != AUTO:
        return field
    says = f"filled by {words}" if words is not None else DROPPED
    return replace(field, options=(*field.options, Option(value=AUTO, label=AUTO, says=says, edits=edits)))


def _ready(state: State) -> str:
    if _review_badge(state) in ("unknown", "error"):
        return ""
    return "not from here" if nameless(state) else "holes" if _has_open_holes(state) else "ready"


def _review_badge(state: State) -> str:
    if not state.checked:
        return "unknown"
    return "error" if state.counted("error") or state.unlaunchable else "warning" if _has_open_holes(state) else "ok"


def _has_open_holes(state: State) -> bool:
    """Return whether a launch from here would be refused, since no variable fills a hole."""
    from dstui.render.launch import open_holes

    return any(hole.name not in os.environ for hole in open_holes(state.plan))


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
    badge=_review_badge,
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
