"""The lines around a form: the title bar, the checklist of steps, and the tabs of narrow screens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events, on

from dstui.render.config_files import config_name
from dstui.tui.forms.steps import STEPS, Step, badge
from dstui.tui.forms.steps.precision import precision_of
from dstui.tui.forms.steps.zero import stage_text
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import GLYPHS, STYLE_OF, Row, Span, fit, row
from dstui.tui.kit.tools import label
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.plan import Plan


class TitleBar(RowList):
    """The title bar: one line without a cursor."""

    MARGIN = 0
    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="title-bar")

    def show(self, state: State, path: Path | None) -> None:
        """Draw the title of this state."""
        self.show_rows([title_row(state, path, self.size.width or 80)])


def title_row(state: State, path: Path | None, width: int) -> Row:
    """Return `dstui  plan.yaml *   2 x H100 …   ZeRO-3 · bf16 · AdamW   ✖ 1 ▲ 2`, as much of it as fits."""
    name = path.name if path else state.plan.name or "unnamed"
    counts = [(f"{GLYPHS[s]} {state.counted(s)}  ", s) for s in ("error", "warning") if state.counted(s)]
    verdict = [Span(*c) for c in counts] or ([Span(f"{' '.join(dict.fromkeys((GLYPHS['ok'], 'ok')))}  ", "ok")] if state.checked else [])
    left = (Span(" dstui ", "accent"), Span(f" {name}", "title"), Span("" if state.saved else " *", "warning"))
    right = (Span(f"{configuration(state.plan)}   ", ""), *verdict)
    used = sum(len(s.text) for s in left + right) + 6
    machine = _machine(state)
    middle = Span("   " + fit(machine, min(len(machine), max(width - used, 0))), "dim")
    return Row((*left, middle), right)


def configuration(plan: Plan) -> str:
    """Return the configuration in short: `ZeRO-3 · bf16 · AdamW`."""
    optimizer = plan.get("deepspeed.optimizer.type", None)
    return " · ".join([f"ZeRO-{stage_text(State(plan))}", precision_of(plan), *([str(optimizer)] if optimizer else [])])


def _machine(state: State) -> str:
    if state.machine is None:
        return "probing this machine…"
    from dstui.machine.report import summarise  # imports the machine's module, which the first frame does not need

    return summarise(state.machine)


class StepList(RowList):
    """The checklist of steps; choosing one shows it."""

    KEEPS_POINTER = True

    def __init__(self, go: Callable[[Step], object]) -> None:
        """Create the list. `go` is called with the chosen step."""
        super().__init__(id="steps")
        label(self, "Steps", "")
        self._go = go
        self.current: Step = STEPS[0]

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self._go(next(step for step in STEPS if step.id == event.key))

    def tip_at(self, x: int, y: int) -> str:  # noqa: ARG002
        """Return what the step under the mouse asks."""
        return STEPS[y].question if 0 <= y < len(STEPS) else ""

    def show(self, state: State, current: Step) -> None:
        """Draw badges and values."""
        self.current = current
        self.show_rows([_step_row(number, step, state, self.size.width or 26, step is current) for number, step in enumerate(STEPS, 1)])
        self.cursor = current.id


LEAST_TITLE = 12
"""Cells that a long value leaves to the title of its step, which is known, while the value is not."""


def _step_row(number: int, step: Step, state: State, width: int, here: bool) -> Row:
    mark = badge(step, state)
    room = width - RowList.MARGIN - cell_len(f"{GLYPHS[mark]} 1 ") - 2
    value = step.value(state)
    value = fit(value, min(cell_len(value), room - min(cell_len(step.title), LEAST_TITLE)))
    title = fit(step.title, min(cell_len(step.title), room - cell_len(value)))
    return row(
        (GLYPHS[mark], STYLE_OF[mark]),
        (f" {number} ", "dim"),
        (title, "title" if here else ""),
        right=[(value, "value" if here else "dim")],
        key=step.id,
    )


class StepLine(RowList):
    """The steps on one line, for narrow screens and for the run screen."""

    MARGIN = 0
    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="step-line")

    def show(self, state: State, current: Step) -> None:
        """Draw glyph and number of each step, and title and value of the current one."""
        fragments: list[Span] = [Span(" ")]
        for number, step in enumerate(STEPS, 1):
            mark = badge(step, state)
            fragments += [Span(GLYPHS[mark], STYLE_OF[mark]), Span(str(number), "title" if step is current else "dim")]
            if step is current:
                fragments += [Span(f" {step.title} ", "title"), Span(step.value(state), "value")]
            fragments.append(Span("  "))
        self.show_rows([Row(tuple(fragments))])


TABS = ("form", "preview", "checks")


class TabLine(RowList):
    """One line with the names of the tabs; a click shows a tab."""

    MARGIN = 0
    can_focus = False

    def __init__(self, pick: Callable[[str], object]) -> None:
        """Create the line. `pick` is called with the tab that was clicked."""
        super().__init__(id="tab-line")
        self._pick = pick
        self._ends: list[tuple[int, str]] = []

    def show(self, state: State, current: str) -> None:
        """Draw the names, with the number of findings."""
        counts = " ".join(f"{GLYPHS[s]} {state.counted(s)}" for s in ("error", "warning") if state.counted(s)) or GLYPHS["ok"]
        names = {"form": "Form", "preview": config_name(state.plan.focus), "checks": f"Checks {counts if state.checked else ''}"}
        fragments: list[Span] = []
        end, self._ends = 0, []
        for tab in TABS:
            text = f" ▸{names[tab]} " if tab == current else f"  {names[tab]} "
            fragments.append(Span(text, "title" if tab == current else "dim"))
            end += len(text)
            self._ends.append((end, tab))
        self.show_rows([Row(tuple(fragments), (Span("tab", "accent"), Span(" next", "dim")))])

    def on_click(self, event: events.Click) -> None:
        """Show the tab that was clicked."""
        if tab := next((tab for end, tab in self._ends if event.x < end), ""):
            self._pick(tab)
