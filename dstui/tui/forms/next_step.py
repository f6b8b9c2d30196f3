"""The row of every form that leads on to the next step, so that Enter alone goes from the first step to the launch."""

from __future__ import annotations

from typing import Final

from dstui.tui.forms.steps import STEPS, Step
from dstui.tui.kit.text_row import Row, row

NEXT: Final = "next step"
"""The key of the row."""
HELP: Final = "Enter goes on with this step as it is; ↓ leads into its fields."


def next_row(step: Step) -> Row:
    """The row under the question of this step: in view also where the form is longer than the screen."""
    number = STEPS.index(step) + 1
    return row(("→ ", "accent"), f"on to {number + 1} · {STEPS[number].title}", right=[("Enter", "dim")], key=NEXT)
