"""The checklist at the left: every step with its badge and its value at one glance. On a narrow screen it is one line."""

from __future__ import annotations

from rich.cells import cell_len

from dstui.tui.forms.steps import STEPS, Step, badge
from dstui.tui.kit.frame import label
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import GLYPHS, STYLE_OF, Row, Span, fit, row
from dstui.tui.session.state import State


class StepList(RowList):
    """The steps; choosing one goes there."""

    KEEPS_POINTER = True

    def __init__(self) -> None:
        super().__init__(id="steps")
        label(self, "Steps", "")
        self.current: Step = STEPS[0]

    def show(self, state: State, current: Step) -> None:
        """Draw badges and values."""
        self.current = current
        self.show_rows([_step_row(number, step, state, self.size.width or 26, step is current) for number, step in enumerate(STEPS, 1)])
        self.cursor = current.id


def _step_row(number: int, step: Step, state: State, width: int, here: bool) -> Row:
    mark = badge(step, state)
    room = width - RowList.MARGIN - cell_len(f"{GLYPHS[mark]} 1 {step.title}") - 2
    value = step.value(state)
    return row(
        (GLYPHS[mark], STYLE_OF[mark]),
        (f" {number} ", "dim"),
        (step.title, "title" if here else ""),
        right=[(fit(value, min(cell_len(value), max(room, 0))), "value" if here else "dim")],
        key=step.id,
    )


class StepLine(RowList):
    """All steps on one line, for narrow screens and for the run, which wants the width."""

    MARGIN = 0
    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="step-line")

    def show(self, state: State, current: Step) -> None:
        """Glyph and number of each step, title and value of the current one."""
        fragments: list[Span] = [Span(" ")]
        for number, step in enumerate(STEPS, 1):
            mark = badge(step, state)
            fragments += [Span(GLYPHS[mark], STYLE_OF[mark]), Span(str(number), "title" if step is current else "dim")]
            if step is current:
                fragments += [Span(f" {step.title} ", "title"), Span(step.value(state), "value")]
            fragments.append(Span("  "))
        self.show_rows([Row(tuple(fragments))])
