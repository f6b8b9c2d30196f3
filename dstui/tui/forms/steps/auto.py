""" "auto" as an answer: offered where the reader of the configuration fills it, and shown wherever it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dstui.check.auto_values import FILLED
from dstui.tui.forms.fields import Field, Option
from dstui.tui.session.edits import Edit
from dstui.tui.session.state import State

AUTO: Final = "auto"
DROPPED = "DeepSpeed passes over it"


def with_auto(field: Field, state: State, edits: tuple[Edit, ...] | None = None) -> Field:
    """A choice with "auto" as its last answer, where that is one."""
    words = FILLED[state.plan.job.integration].get(field.path.removeprefix("deepspeed."))
    if words is None and field.value(state) != AUTO:
        return field
    says = f"filled by {words}" if words is not None else DROPPED
    return replace(field, options=(*field.options, Option(value=AUTO, label=AUTO, says=says, edits=edits)))
