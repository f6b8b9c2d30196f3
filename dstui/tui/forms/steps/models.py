"""Several models in one run: which of them the forms are about, and what it does."""

from __future__ import annotations

from dstui.tui.forms.fields import Field, Option
from dstui.tui.session.state import State

ROLES = (
    Option(value="train", label="train", says="it has an optimizer"),
    Option(value="inference", label="inference", says="it only computes: stage 3, no optimizer"),
)


def which_model(state: State) -> tuple[Field, ...]:
    """The choice of the model; nothing where the run has one alone."""
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
    """What the model in focus does."""
    if not state.plan.focus:
        return ()
    return (Field(path=f"models.{state.plan.focus}.role", label="Its role", kind="choice", options=ROLES, default="train"),)


def of_model(path: str) -> tuple[str, str]:
    """A path of the Plan as the model that it is about, and the path as the forms of that model have it: `models.a.deepspeed.x`."""
    parts = path.split(".", 2)
    if len(parts) == 3 and parts[0] == "models" and parts[2].partition(".")[0] in ("deepspeed", "model"):
        return parts[1], parts[2]
    return "", path
