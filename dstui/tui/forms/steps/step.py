"""What a step of the checklist is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dstui.plan.finding import Finding
from dstui.tui.forms.fields import Field
from dstui.tui.kit.text_row import Row
from dstui.tui.session.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its question, its fields, and the value that the list of steps shows for it."""

    id: str
    title: str
    question: str = ""
    fields: Callable[[State], tuple[Field, ...]]
    owns: tuple[str, ...] = ()
    """Dotted paths whose findings count for this step's badge, with everything under them."""
    value: Callable[[State], str]
    badge: Callable[[State], str] | None = None
    """Where the badge is not simply the gravest finding: a function to ok, warning, error or unknown."""
    below: Callable[[State, Sequence[Finding], int], list[Row]] | None = None
    """Rows under the fields that only inform: from the findings of this step, so many cells wide."""
    wide: bool = False
    """Wants the place of preview and checks too."""
    pane: Literal["form", "review", "run"] = "form"


def always(*fields: Field) -> Callable[[State], tuple[Field, ...]]:
    """The same fields whatever the state."""
    return lambda _state: fields
